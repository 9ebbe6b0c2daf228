"""Threads of the kernels: shared by callers, waiting without spinning, gone from no answer."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import torch
from headway_api.types import Precision
from headway_runtime.kernels.library import Library
from headway_runtime.kernels.linear import pack_with

from tests.unit.kernel_levels import same_bits

ENOUGH = 4096  # outputs for which threads are woken
TASKS = Path("/proc/self/task")


def test_callers_at_the_same_time_get_their_own_answers() -> None:
    torch.set_num_threads(1)
    native = Library(threads=3)
    weight = torch.randn(ENOUGH, 256)
    multiply = pack_with(native, weight, Precision.EXPORTED)
    inputs = [torch.randn(rows, 256) for rows in (1, 2, 5, 9)]
    expected = [pack_with(Library(threads=1), weight, Precision.EXPORTED)(x) for x in inputs]
    wrong: list[int] = []

    def call(number: int) -> None:
        wrong.extend(number for _ in range(150) if not same_bits(multiply(inputs[number]), expected[number]))

    callers = [threading.Thread(target=call, args=(number,)) for number in range(len(inputs))]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(timeout=60)
    assert not any(caller.is_alive() for caller in callers)
    assert not wrong


WAITING = f"""
import os, time
from pathlib import Path
import torch
from headway_api.types import Precision
from headway_runtime.kernels.library import Library
from headway_runtime.kernels.linear import pack_with
def spent(thread):
    return sum(map(int, (thread / "stat").read_text().rpartition(")")[2].split()[11:13])) / os.sysconf("SC_CLK_TCK")
torch.set_num_threads(1)
tasks = Path("/proc/self/task")
others = set(tasks.iterdir())
pack_with(Library(threads=4), torch.randn({ENOUGH}, 256), Precision.EXPORTED)(torch.randn(4, 256))
threads = set(tasks.iterdir()) - others
before = sum(map(spent, threads))
time.sleep(0.3)
print(len(threads), sum(map(spent, threads)) - before)
"""


def test_threads_that_wait_use_no_processor() -> None:
    """In a process of its own: the threads of this one may be there since another test, and other tests' are, too."""
    said = subprocess.run([sys.executable, "-c", WAITING], capture_output=True, text=True, check=True).stdout.split()
    assert int(said[0]) == 3
    assert float(said[1]) < 0.05


def test_a_child_computes_alone() -> None:
    """A fork has none of the threads, and does not wait for them."""
    torch.set_num_threads(1)
    multiply = pack_with(Library(threads=2), torch.randn(ENOUGH, 256), Precision.EXPORTED)
    x = torch.randn(4, 256)
    expected = multiply(x)
    assert len(list(TASKS.iterdir())) > 1
    pid = os.fork()
    if pid == 0:
        os._exit(0 if same_bits(multiply(x), expected) else 1)
    assert os.waitpid(pid, 0)[1] == 0
