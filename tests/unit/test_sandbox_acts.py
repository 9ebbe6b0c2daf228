"""The sandbox as a hostile program meets it: real processes that confine themselves and then try everything.

Each act is done by a process without a sandbox as well, where it must succeed: an act that fails anyway proves nothing.
"""

import errno
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

import pytest
from headway_runtime.sandbox.promises import PROMISES, Parts

from tests.unit.sandbox_acts import ACTS, ALLOWED, PROMISE
from tests.unit.sandbox_scene import REFUSED, Outcomes, done, furnish, made_in, refused
from tests.unit.sandbox_world import World

ROOT = Path(__file__).parents[2]
POD_USER = 65532
ROOT_ONLY = {
    *("open_a_folder_by_a_handle", "open_a_raw_socket", "mount", "change_the_root", "type_on_the_terminal"),
    *("load_a_program_into_the_kernel", "count_events_of_the_processor", "handle_page_faults"),
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with ExitStack() as stack:
        yield made_in(tmp_path_factory.mktemp("world"), stack)


def attempt(
    world: World,
    acts: Iterable[str],
    *,
    where: str = "main",
    confined: bool = True,
    lack: Mapping[str, int] | None = None,
    user: int | None = None,
) -> Outcomes:
    """Outcomes by act, of one process that does these acts; `confine`: its report.

    `lack`: what its kernel is without. Without a sandbox, each act has a process of its own.
    """
    folder = Path(world.folder)
    furnish(folder)
    if user is not None:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, user, user, follow_symlinks=False)
    facts = {name: value for name, value in asdict(world).items() if value != -1}
    request = {
        "world": facts,
        "acts": list(acts),
        "where": where,
        "confined": confined,
        "lack": lack or {},
        "user": user,
    }
    ended = subprocess.run(
        [sys.executable, "-m", "tests.unit.sandbox_process", json.dumps(request)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stderr
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    return {line["act"]: line["outcome"] for line in lines}


@pytest.fixture(scope="module")
def confined(world: World) -> dict[str, Outcomes]:
    """Outcomes of everything on every kind of thread."""
    return {where: attempt(world, [*ACTS, *ALLOWED], where=where) for where in ("main", "thread", "openmp")}


@pytest.fixture(scope="module")
def control(world: World) -> Outcomes:
    """The same without a sandbox."""
    return attempt(world, ACTS, confined=False)


@pytest.mark.parametrize("act", ACTS)
def test_a_confined_process_cannot(act: str, control: Outcomes, confined: dict[str, Outcomes]) -> None:
    assert control[act] == "done"
    outcomes = {where: outcomes[act] for where, outcomes in confined.items()}
    assert set(outcomes.values()) <= REFUSED, outcomes


@pytest.mark.parametrize("act", ALLOWED)
def test_a_confined_process_can(act: str, confined: dict[str, Outcomes]) -> None:
    assert {where: outcomes[act] for where, outcomes in confined.items()} == dict.fromkeys(confined, "done")


@pytest.mark.parametrize("abi", range(1, 7))
def test_on_an_older_kernel_nothing_is_missing(abi: int, world: World) -> None:
    outcomes = attempt(world, [*ACTS, *ALLOWED], lack={"abi": abi})
    assert outcomes.pop("confine") == {"landlock": abi, "seccomp": True, "missing": []}
    assert (done(outcomes), refused(outcomes)) == (set(ALLOWED), set(outcomes) - set(ALLOWED))


@pytest.mark.parametrize("abi", range(1, 8))
def test_without_seccomp_landlock_keeps_what_it_is_said_to_keep(abi: int, world: World) -> None:
    parts = Parts(abi, seccomp=False)
    kept = acts_that_break(parts, kept=True)
    outcomes = attempt(world, [*kept, *ALLOWED], lack={"abi": abi, "seccomp": errno.ENOSYS})
    report = outcomes.pop("confine")
    assert (report["landlock"], report["seccomp"]) == (abi, False)
    assert report["missing"] == [
        "seccomp: this kernel does not have it; it needs CONFIG_SECCOMP_FILTER",
        f"so the program could {', '.join(parts.broken())}",
    ]
    assert (done(outcomes), refused(outcomes)) == (set(ALLOWED), set(outcomes) - set(ALLOWED))


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (errno.ENOSYS, "Landlock: this kernel does not have it; Linux 5.13"),
        (errno.EOPNOTSUPP, "Landlock: this kernel has it switched off; add landlock to the lsm="),
        (errno.EPERM, "Landlock: a seccomp profile denies it; RuntimeDefault allows it from containerd 1.6"),
        (errno.ENOMEM, "Landlock: [Errno 12]"),
    ],
)
def test_without_landlock_seccomp_keeps_what_it_is_said_to_keep(code: int, says: str, world: World) -> None:
    outcomes = attempt(world, [*acts_that_break(Parts(0, seccomp=True), kept=True), *ALLOWED], lack={"landlock": code})
    report = outcomes.pop("confine")
    assert (report["landlock"], report["seccomp"]) == (0, True)
    assert report["missing"][0].startswith(says)
    assert report["missing"][1:] == ["so the program could read or write other files"]
    assert (done(outcomes), refused(outcomes)) == (set(ALLOWED), set(outcomes) - set(ALLOWED))


def acts_that_break(parts: Parts, *, kept: bool) -> list[str]:
    promises = {promise.text for promise in PROMISES if parts.keep(promise) is kept}
    return [act for act, promise in PROMISE.items() if promise in promises]


def test_every_promise_is_tried() -> None:
    assert set(PROMISE.values()) == {promise.text for promise in PROMISES}


@pytest.mark.parametrize(
    ("lack", "act"),
    [
        ({"landlock": errno.ENOSYS}, "read_a_file_outside"),
        ({"seccomp": errno.ENOSYS}, "fork"),
        ({"seccomp": errno.ENOSYS, "abi": 3}, "connect"),
        ({"seccomp": errno.ENOSYS, "abi": 5}, "signal_another_process"),
        ({"seccomp": errno.ENOSYS}, "change_a_mode"),
    ],
)
def test_what_is_reported_as_missing_is_missing(lack: dict[str, int], act: str, world: World) -> None:
    outcomes = attempt(world, [act], lack=lack)
    assert PROMISE[act] in outcomes["confine"]["missing"][-1]
    assert outcomes[act] == "done"


def test_a_thread_from_before_makes_no_process_and_is_reported_to_reach_files(world: World) -> None:
    outcomes = attempt(world, ["fork", "connect", "read_a_file_outside"], where="before")
    assert (outcomes["fork"], outcomes["connect"]) == ("EPERM", "EPERM")
    assert outcomes["read_a_file_outside"] == "done"
    (missing,) = outcomes["confine"]["missing"]
    assert missing.startswith("threads: 1 ran before the sandbox")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become the user of a pod")
def test_a_pods_user_is_confined_too() -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))  # pytest's own are closed to other users
        world = made_in(folder, stack, user=POD_USER)
        outcomes = attempt(world, [*ACTS, *ALLOWED], user=POD_USER)
        assert outcomes.pop("confine")["missing"] == []
        assert (done(outcomes), refused(outcomes)) == (set(ALLOWED), set(ACTS))
        control = attempt(world, ACTS, user=POD_USER, confined=False)
    by_nobody = {act for act, outcome in control.items() if outcome != "done"}
    assert by_nobody <= ROOT_ONLY
