"""What a confined process may write through a file that was open before, such as the termination message of its pod."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import errno, os, sys
from headway_runtime.sandbox import limits
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
limits.limit()
os.pwrite(file, b"x", limits.LARGEST_FILE - 1)
try:
    os.pwrite(file, b"x", limits.LARGEST_FILE)
except OSError as error:
    print(errno.errorcode[error.errno], file=sys.stderr)
"""


@pytest.mark.parametrize("log", ["a pipe", "a file"])
def test_no_file_becomes_large_but_a_log_may(log: str, tmp_path: Path) -> None:
    """On a node, no quota counts the termination message: a program could fill the disk of others with it."""
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "termination-log")]
    if log == "a pipe":
        assert subprocess.run(command, capture_output=True, text=True, check=True).stderr == "EFBIG\n"
        return
    with (tmp_path / "log").open("w") as file:
        subprocess.run(command, stdout=subprocess.PIPE, stderr=file, check=True)
    assert (tmp_path / "log").read_text() == ""
