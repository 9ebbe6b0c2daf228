"""Mapped weights: what nobody reads any more takes no memory, and is still what it was."""

import mmap
import re
from pathlib import Path
from typing import Any

import torch
from headway_runtime.program.weights import Weights

ROWS = 1 << 18
BYTES = 4 * ROWS


def table(*offsets: int) -> list[dict[str, Any]]:
    row = {"dtype": "float32", "shape": [ROWS], "stride": [1], "start": 0, "bytes": BYTES, "gradient": False}
    return [{**row, "value": f"w{number}", "offset": offset} for number, offset in enumerate(offsets)]


def mapped(path: Path, folder: Path = Path("/proc/self")) -> int:
    """Bytes of the file that this process has in memory."""
    found = re.findall(rf"{re.escape(str(path))}\n(?:.*\n)*?Rss: +(\d+) kB", (folder / "smaps").read_text())
    return sum(map(int, found)) * 1024


def weights(tmp_path: Path, *offsets: int) -> tuple[Path, Weights]:
    path = tmp_path / "weights.bin"
    path.write_bytes(torch.arange(2 * ROWS, dtype=torch.float32).numpy().tobytes())
    return path, Weights(path, table(*offsets), torch.device("cpu"))


def test_what_is_released_takes_no_memory_any_more(tmp_path: Path) -> None:
    path, found = weights(tmp_path, 0, BYTES)
    total = sum(float(tensor.sum()) for tensor in found.tensors.values())
    assert total > 0
    assert mapped(path) >= 2 * BYTES
    first = found.tensors["w0"]
    found.release({"w0"})
    assert mapped(path) <= BYTES + mmap.PAGESIZE
    assert found.tensors.keys() == {"w1"}
    assert torch.equal(first, torch.arange(ROWS, dtype=torch.float32)), "it comes from the file again"


def test_what_another_weight_shares_stays(tmp_path: Path) -> None:
    path, found = weights(tmp_path, 0, 0)
    assert float(found.tensors["w0"].sum()) > 0
    found.release({"w0"})
    assert mapped(path) >= BYTES
    found.release({"w1"})
    assert mapped(path) <= mmap.PAGESIZE


def test_what_rests_comes_back_as_it_is_read(tmp_path: Path) -> None:
    path, found = weights(tmp_path, 0, BYTES)
    assert float(found.tensors["w0"].sum() + found.tensors["w1"].sum()) > 0
    found.rest()
    assert mapped(path) <= mmap.PAGESIZE
    assert float(found.tensors["w1"][0]) == ROWS
    assert mapped(path) > 0
