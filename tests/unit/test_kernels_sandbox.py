"""A confined process loads the kernels, gets threads for them, and computes what any other does."""

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import hashlib, os, sys
from pathlib import Path
from headway_api.podtemplate import Sandbox
from headway_runtime.sandbox import confine, files_of_this_process
os.environ["TMPDIR"] = sys.argv[2]
if sys.argv[1] == "confined":
    confine(files_of_this_process(read=[], scratch=Path(sys.argv[2]), gpu=False), demand=Sandbox.REQUIRE)
import torch
from headway_api.types import Precision
from headway_runtime.kernels import library, linear
torch.set_num_threads(2)
torch.manual_seed(7)
before = len(os.listdir("/proc/self/task"))
packed = linear.pack(torch.randn(3000, 576), Precision.EXPORTED)
answer = packed(torch.randn(4, 576))
print(library.describe(), len(os.listdir("/proc/self/task")) - before)
print(hashlib.sha256(answer.numpy().tobytes()).hexdigest())
"""


def test_kernels_are_loaded_and_get_their_threads_after_the_sandbox(tmp_path: Path) -> None:
    confined, free = (
        subprocess.run([sys.executable, "-c", PROGRAM, how, str(tmp_path)], capture_output=True, text=True)
        for how in ("confined", "free")
    )
    assert confined.returncode == 0, confined.stderr
    described, more = confined.stdout.split()[:2]
    assert described.startswith("native-")
    assert more == "1"
    assert confined.stdout == free.stdout
