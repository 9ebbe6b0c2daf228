"""The order of confinement, and what happens where the kernel lacks a part of it.

One thread → limits and no_new_privs → Landlock → seccomp. Each needs what is before it: Landlock covers the calling
thread and those it makes, so there must be no other yet (importing torch starts some); both need no_new_privs; and
seccomp denies the calls with which Landlock is set up.
"""

import errno
import os

from headway_api.podconfig import SandboxReport
from headway_api.podtemplate import Sandbox

from headway_runtime.errors import FatalError
from headway_runtime.logs import log
from headway_runtime.sandbox import landlock, limits, policy, seccomp
from headway_runtime.sandbox.files import Files
from headway_runtime.sandbox.kernel import UnknownMachineError
from headway_runtime.sandbox.promises import Parts

FIELD = "spec.template.sandbox"

_LANDLOCK = {
    errno.ENOSYS: "this kernel does not have it; Linux 5.13 and newer do",
    errno.EOPNOTSUPP: "this kernel has it switched off; add landlock to the lsm= option of its command line",
    errno.EPERM: "a seccomp profile denies it; RuntimeDefault allows it from containerd 1.6 and Docker 23 on",
}
_SECCOMP = {
    errno.ENOSYS: "this kernel does not have it; it needs CONFIG_SECCOMP_FILTER",
    errno.EINVAL: "this kernel does not have filters; it needs CONFIG_SECCOMP_FILTER",
    errno.EPERM: "a seccomp profile denies it",
}


def confine(files: Files, *, demand: Sandbox) -> SandboxReport:
    """Confine this process for good; returns what is in force.

    Raises FatalError `SandboxUnavailable` when a part is missing and `demand` is `Require`; under `BestEffort` the
    report and the log say so.
    """
    try:
        limits.limit()
    except (OSError, UnknownMachineError) as error:
        parts = Parts(0, False, (f"both mechanisms: {error}",))
    else:
        alone = _alone()
        abi, no_landlock = _landlock(files)
        filtered, no_seccomp = _seccomp(devices=bool(files.devices))
        parts = Parts(abi, filtered, tuple(reason for reason in (alone, no_landlock, no_seccomp) if reason))
    return _judge(parts, demand)


def _judge(parts: Parts, demand: Sandbox) -> SandboxReport:
    missing = parts.missing()
    if missing and demand is Sandbox.REQUIRE:
        message = f"{'; '.join(missing)}. Use other nodes, or set {FIELD} to BestEffort to serve all the same"
        raise FatalError("SandboxUnavailable", message, condition="Accepted", field=FIELD)
    report = SandboxReport(landlock=parts.landlock, seccomp=parts.seccomp, missing=missing)
    log("confined", level="warning" if missing else "info", **report.to_dict())
    return report


def _alone() -> str | None:
    """Why other threads escape, if there are any."""
    try:
        others = limits.threads() - 1
    except OSError as error:
        return f"threads: they cannot be counted ({error}), so another one may not be confined"
    if others == 0:
        return None
    return f"threads: {others} ran before the sandbox and reach every file; something in the image starts them"


def _landlock(files: Files) -> tuple[int, str | None]:
    """The ABI in force, or 0 and the reason."""
    try:
        abi = landlock.version()
        landlock.restrict(files, abi)
    except (OSError, UnknownMachineError) as error:
        return 0, _reason("Landlock", error, _LANDLOCK)
    return abi, None


def _seccomp(*, devices: bool) -> tuple[bool, str | None]:
    """Whether the filter is in force, or the reason."""
    try:
        seccomp.restrict(policy.calls(os.getpid(), devices=devices))
    except (OSError, UnknownMachineError) as error:
        return False, _reason("seccomp", error, _SECCOMP)
    return True, None


def _reason(part: str, error: OSError | UnknownMachineError, known: dict[int, str]) -> str:
    code = error.errno if isinstance(error, OSError) else None
    return f"{part}: {known.get(code or 0, str(error))}"
