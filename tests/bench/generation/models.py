"""The real decoders in every form that a server of this comparison wants, made once for a machine."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from headway_runtime.prepare import run

from tests import decoders
from tests.decoders import real

NAMES = ("smollm2", "gemma3")


def artifact(name: str) -> Path:
    """The exported `.pt2`."""
    return {"smollm2": decoders.smollm2, "gemma3": decoders.gemma3}[name]()


def prepared(name: str, folder: Path) -> Path:
    """What the prepare container makes of it, in `folder`."""
    run.prepare(artifact(name).as_uri(), folder, pinned=None, credentials=Path("/nonexistent"))
    return folder


def hugging_face(name: str) -> Path:
    """A folder with the same weights, dequantised to float32, as transformers saves them: for vLLM."""
    return real.made(f"{name}-float32", lambda part: _in_a_process("save", name, part))


def q8_0(name: str) -> Path:
    """The same weights, dequantised, then in llama.cpp's Q8_0 (norms float32): for llama.cpp."""
    return real.made(f"{name}-q8_0.gguf", lambda part: _in_a_process("quantize", name, part))


def _in_a_process(what: str, name: str, path: Path) -> None:
    """A gigabyte of memory, which goes with it."""
    command = [
        sys.executable,
        "-c",
        f"from tests.bench.generation import models; models.{what}({name!r}, {str(path)!r})",
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(real.ROOT)}
    subprocess.run(command, check=True, env=environment)


def save(name: str, path: str) -> None:
    """Write `hugging_face`."""
    import torch
    from headway_runtime.export.generate import load

    found = load(str(real.gguf(name)), torch.float32)
    with tempfile.TemporaryDirectory(dir=Path(path).parent) as folder:
        found.model.save_pretrained(folder)
        found.tokenizer.save_pretrained(folder)
        os.rename(folder, path)
        os.mkdir(folder)


def quantize(name: str, path: str) -> None:
    """Write `q8_0`: every matrix of the GGUF file in Q8_0, everything else as it is."""
    import gguf

    source = gguf.GGUFReader(str(real.gguf(name)))
    architecture = source.fields[gguf.Keys.General.ARCHITECTURE].contents()
    writer = gguf.GGUFWriter(path, architecture)
    for field in source.fields.values():
        _copy(writer, field)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    kind = gguf.GGMLQuantizationType
    for tensor in source.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        if values.ndim > 1:
            writer.add_tensor(tensor.name, gguf.quants.quantize(values, kind.Q8_0), raw_dtype=kind.Q8_0)
        else:
            writer.add_tensor(tensor.name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _copy(writer: Any, field: Any) -> None:
    import gguf

    ours = (gguf.Keys.General.ARCHITECTURE, gguf.Keys.General.FILE_TYPE)  # the writer says these itself
    if field.name in ours or field.name.startswith("GGUF."):
        return
    kind = field.types[0]
    inside = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
    writer.add_key_value(field.name, field.contents(), kind, sub_type=inside)
