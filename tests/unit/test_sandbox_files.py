"""Which files a process is confined to, as a value, and what is said where there is no sandbox to be had."""

import os
import platform
import sys
from pathlib import Path

import pytest
from headway_api.podtemplate import Sandbox
from headway_runtime.errors import FatalError
from headway_runtime.sandbox import confine, files_of_this_process, kernel, landlock
from headway_runtime.sandbox.files import Files
from headway_runtime.sandbox.landlock import Right
from headway_runtime.sandbox.promises import PROMISES, Parts

SCRATCH = Path("/scratch")


def test_the_interpreter_and_what_is_asked_for_are_read_and_scratch_alone_is_written() -> None:
    files = files_of_this_process(read=[Path("/model")], scratch=SCRATCH, gpu=False)
    assert {Path("/model"), Path("/proc/self"), Path(os.__file__).parent} <= set(files.read)
    assert files.write == (SCRATCH, Path("/dev/null"))
    assert files.devices == ()


def test_nothing_wide_is_granted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, "", ".", "relative"])
    monkeypatch.setenv("LD_LIBRARY_PATH", ":relative:/opt/lib")
    files = files_of_this_process(read=[], scratch=SCRATCH, gpu=False)
    wide = {"/", "/etc", "/proc", "/sys", "/dev", "/tmp", "/var", "/home", str(Path.home())}
    assert not wide & {str(path) for path in files.read}
    assert all(path.is_absolute() for path in files.read)
    assert Path("/opt/lib") in files.read


def test_devices_of_a_gpu_are_granted_only_where_one_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [Path("/dev/nvidia0"), Path("/dev/nvidiactl")]
    monkeypatch.setattr(Path, "glob", lambda self, pattern: found if str(self / pattern) == "/dev/nvidia*" else [])
    assert files_of_this_process(read=[], scratch=SCRATCH, gpu=True).devices == tuple(found)
    assert files_of_this_process(read=[], scratch=SCRATCH, gpu=False).devices == ()


@pytest.mark.parametrize(
    ("abi", "highest"),
    [
        *[(1, Right.MAKE_SYM), (2, Right.REFER), (3, Right.TRUNCATE), (4, Right.TRUNCATE)],
        *[(5, Right.IOCTL_DEV), (7, Right.IOCTL_DEV), (99, Right.IOCTL_DEV)],
    ],
)
def test_only_rights_that_the_kernel_knows_are_asked_for(abi: int, highest: Right) -> None:
    assert max(Right(landlock.handled(abi))) == highest
    assert Right.EXECUTE in landlock.handled(abi)
    assert Right.EXECUTE not in landlock.READ | landlock.WRITE | landlock.DEVICE


def test_with_both_parts_every_promise_is_kept_from_the_first_version_on() -> None:
    assert Parts(1, seccomp=True).missing() == []
    assert Parts(0, seccomp=False, reasons=("why",)).missing() == [
        "why",
        f"so the program could {', '.join(promise.text for promise in PROMISES)}",
    ]


def test_another_system_is_said_and_no_call_is_made_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    with pytest.raises(kernel.UnknownMachineError, match="for Linux on x86_64 and aarch64; this is Darwin"):
        kernel.call("prctl", 0)
    report = confine(Files(), demand=Sandbox.BEST_EFFORT)
    assert (report.landlock, report.seccomp) == (0, False)
    assert "this is Darwin" in report.missing[0]
    with pytest.raises(FatalError, match="this is Darwin"):
        confine(Files(), demand=Sandbox.REQUIRE)
