"""What memory a container leaves its process, and that a request for more fails alone."""

import subprocess
import sys
from pathlib import Path

import pytest
from headway_runtime import memory
from headway_runtime.memory import Room


def machine(folder: Path, files: dict[str, str]) -> tuple[Path, Path]:
    """Folders like /sys/fs/cgroup and /proc with these files; the machine has 8 GiB."""
    for name, text in {"proc/meminfo": "MemTotal:  8388608 kB\nMemFree: 1 kB\n", **files}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder / "cgroup", folder / "proc"


@pytest.mark.parametrize(
    ("files", "size", "whose"),
    [
        ({"cgroup/memory.max": "1073741824\n"}, 1 << 30, "the container's memory limit"),
        ({"cgroup/memory.max": "max\n"}, 8 << 30, "the memory of this machine"),
        ({"cgroup/memory/memory.limit_in_bytes": "536870912\n"}, 1 << 29, "the container's memory limit"),
        ({"cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, 8 << 30, "the memory of this machine"),
        ({}, 8 << 30, "the memory of this machine"),
    ],
)
def test_the_smaller_of_the_containers_limit_and_the_machine_counts(
    files: dict[str, str], size: int, whose: str, tmp_path: Path
) -> None:
    assert memory.host_room(*machine(tmp_path, files)) == Room(size, whose)


def test_the_memory_of_this_very_process_is_read() -> None:
    assert 1 << 20 < memory.in_use() < 64 << 30
    assert memory.host_room().bytes > 1 << 20


SCRIPT = """
import resource
import torch
from headway_runtime import memory
memory.bound_allocations(memory.Room(memory.in_use() + (512 << 20), "a test"))
kept = torch.ones(256 << 18)  # 256 MiB, and there is room
try:
    torch.ones(2 << 30)
except RuntimeError as error:
    print("refused", "can't allocate memory" in str(error), kept.sum().item() > 0)
soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
print(soft == hard)
"""


def test_beyond_the_bound_an_allocation_raises_and_the_process_lives_on() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["refused", "True", "True", "True"], done.stderr
