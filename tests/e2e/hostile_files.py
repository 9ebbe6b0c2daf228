"""Files that a pod must refuse, made from honest ones. Payloads are markers: a touched file."""

import base64
import struct
from pathlib import Path
from typing import Any

from tests.hostile import archives

RECORD = "extra/headway.json"
MARKER = Path("/tmp/headway-marker")  # in the pod


def with_pickle(honest: Path, path: Path) -> Path:
    """The program with example inputs whose pickle would touch the marker: what `torch.export.load` would run."""
    entries = archives.read(honest)
    (program,) = (name for name in entries if name.startswith("models/"))
    record = f"data/sample_inputs/{Path(program).stem}.pt"
    return archives.write(path, {**entries, record: archives.pickled(MARKER)})


def with_wrong_answers(honest: Path, path: Path) -> Path:
    """The program with golden answers that are larger by one than what it computes."""

    def alter(record: Any) -> None:
        for sample in record["samples"]:
            for tensor in sample["outputs"]:
                data = base64.b64decode(tensor["data"])
                numbers = struct.unpack(f"<{len(data) // 4}f", data)
                tensor["data"] = base64.b64encode(struct.pack(f"<{len(numbers)}f", *(n + 1 for n in numbers))).decode()

    return archives.write(path, archives.altered(archives.read(honest), alter, RECORD))


def with_wrong_shape(honest: Path, path: Path) -> Path:
    """The program, which computes four numbers a row, said to give five. Its samples would contradict that."""
    entries = archives.altered(archives.read(honest), lambda record: record.update(samples=[]), RECORD)

    def alter(program: Any) -> None:
        graph = program["graph_module"]["graph"]
        output = graph["tensor_values"][graph["outputs"][0]["as_tensor"]["name"]]
        output["sizes"][1] = {"as_int": 5}
        output["strides"][0] = {"as_int": 5}

    return archives.write(path, archives.altered(entries, alter))
