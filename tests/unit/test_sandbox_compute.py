"""What a confined process must do as well as any other, and what ends it."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

INTERFACE_OF_32_BITS = """
import ctypes, mmap, os, sys
from pathlib import Path
from headway_api.podtemplate import Sandbox
from headway_runtime.sandbox import confine, files_of_this_process
memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
memory.write(bytes.fromhex("b814000000 cd80 c3"))  # mov eax, 20 (getpid there); int 0x80; ret
function = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(memory)))
if sys.argv[1] == "confined":
    confine(files_of_this_process(read=[], scratch=Path(sys.argv[2]), gpu=False), demand=Sandbox.REQUIRE)
print(function() == os.getpid())
"""


def test_torch_computes_the_same_answers(tmp_path: Path) -> None:
    confined, free = (
        subprocess.run(
            [sys.executable, "-m", "tests.unit.sandbox_compute", how, str(tmp_path)],
            cwd=ROOT,
            capture_output=True,
            text=True,
        )
        for how in ("confined", "free")
    )
    assert confined.returncode == 0, confined.stderr
    assert len(confined.stdout.split()) == 12
    assert confined.stdout == free.stdout


def test_calls_by_the_interface_of_32_bits_end_the_process(tmp_path: Path) -> None:
    def run(how: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-c", INTERFACE_OF_32_BITS, how, str(tmp_path)], capture_output=True, text=True
        )

    free = run("free")
    if free.stdout.strip() != "True":
        pytest.skip("this kernel has no such interface")
    assert run("confined").returncode == -signal.SIGSYS
