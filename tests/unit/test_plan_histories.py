"""Random histories of users, nodes, routers and the operator's own deaths, in any order.

No write harms traffic (`plan_world` checks each of them), and once faults stop everything comes to rest as asked.
"""

import os
from typing import Any

import hypothesis.strategies as st
import pytest
from headway_operator.observed import Role
from hypothesis import HealthCheck, given, settings

from tests.unit.plan_world import BROKEN, DIGESTS, OTHER_SIGNATURE, CrashError, World, world

EXAMPLES = int(os.environ.get("HEADWAY_EXAMPLES", "150"))  # more of them when the plan itself is being changed
URIS = st.sampled_from(["s3://m/a", "s3://m/b", "s3://m/c", BROKEN])
DIGEST = st.sampled_from([None, None, None, *DIGESTS.values()])


def artifact(uri: str, digest: str | None) -> dict[str, Any]:
    return {"uri": uri, **({"digest": digest} if digest else {})}


ARTIFACTS = st.builds(artifact, URIS, DIGEST)
CANARIES = st.one_of(
    st.none(),
    st.builds(
        lambda uri, weight: {"artifact": {"uri": uri}, "weight": weight},
        st.sampled_from(["s3://m/a", "s3://m/b", "s3://m/c", OTHER_SIGNATURE, BROKEN]),
        st.sampled_from([0, 1, 10, 50, 99, 100]),
    ),
)
EDITS = (
    st.tuples(st.just("artifact"), ARTIFACTS),
    st.tuples(st.just("canary"), CANARIES),
    st.tuples(st.just("keep"), st.sampled_from(["Warm", "None"])),
    st.tuples(st.just("refresh"), st.sampled_from(["1", "2"])),
)
LUCK = (
    st.tuples(st.just("replicas"), st.integers(1, 5)),
    st.tuples(st.just("round"), st.none()),
    st.tuples(st.just("round"), st.none()),
    st.tuples(st.just("round"), st.none()),
    st.tuples(st.just("half"), st.sampled_from([0, 1])),
    st.tuples(st.just("half"), st.sampled_from([0, 1])),
    st.tuples(st.just("pass"), st.none()),
    st.tuples(st.just("crash"), st.integers(0, 12)),
    st.tuples(st.just("nodes"), st.integers(0, 3)),
    st.tuples(st.just("nodes"), st.integers(0, 3)),
    st.tuples(st.just("acknowledge"), st.sampled_from([0, 1, None])),
    st.tuples(st.just("acknowledge"), st.none()),
    st.tuples(st.just("kill"), st.integers(0, 9)),
    st.tuples(st.just("restart"), st.none()),
    st.tuples(st.just("remember"), st.none()),
    st.tuples(st.just("lose-status"), st.none()),
    st.tuples(st.just("wait"), st.sampled_from([1.0, 60.0, 1200.0])),
    st.tuples(st.just("settle"), st.none()),
)
HANDS = (
    st.tuples(st.just("vandal"), st.integers(0, 99)),
    st.tuples(st.just("scale"), st.tuples(st.integers(0, 9), st.sampled_from([0, 1, 7]))),
)
History = list[tuple[str, Any]]
HISTORIES = st.lists(st.one_of(*EDITS, *LUCK, *HANDS), max_size=30)

A = {"uri": "s3://m/a"}
OTHER = {"digest": DIGESTS["s3://m/c"]}  # bytes that are not there
RECORD, DEPLOYMENT, CONFIG = (("delete", kind) for kind in ("ControllerRevision", "Deployment", "ConfigMap"))

# Histories that a search found, of plans that lost traffic or never came to rest
FOUND: dict[str, History] = {
    "all that was known of a version is lost, and the operator starts": [
        ("settle", None),
        ("restart", None),
        ("lose-status", None),
        RECORD,
        ("round", None),
    ],
    "a version loses record and Deployment, and the spec changes": [
        ("settle", None),
        RECORD,
        DEPLOYMENT,
        ("refresh", "1"),
    ],
    "a digest is asserted of a version whose record is lost": [
        ("settle", None),
        RECORD,
        ("artifact", {**A, **OTHER}),
    ],
    "the same while the status is lost": [
        ("settle", None),
        RECORD,
        ("lose-status", None),
        ("artifact", {**A, **OTHER}),
    ],
    "a digest is asserted of a version that may have been fetched, and taken back": [
        ("settle", None),
        ("refresh", "1"),
        ("half", 0),
        ("artifact", {**A, **OTHER}),
        ("settle", None),
        ("artifact", A),
    ],
    "what carries all traffic shall be the canary of what can never be ready": [
        ("settle", None),
        ("artifact", {"uri": "s3://m/b", **OTHER}),
        ("canary", {"artifact": A, "weight": 10}),
        RECORD,
        ("lose-status", None),
        ("round", None),
    ],
    "of a version that served nothing is left, and a digest is asserted of it and taken back": [
        ("settle", None),
        RECORD,
        DEPLOYMENT,
        ("lose-status", None),
        ("restart", None),
        ("artifact", {**A, **OTHER}),
        ("half", 0),
        ("artifact", A),
    ],
    "a version whose pin is wrong loses the file that says so": [
        ("settle", None),
        ("artifact", {"uri": "s3://m/b", **OTHER}),
        ("round", None),
        CONFIG,
        ("restart", None),
        ("settle", None),
    ],
}


def happen(w: World, kind: str, value: Any) -> None:
    match kind:
        case "artifact" | "replicas":
            w.edit(**{kind: value})
        case "canary":
            w.edit(canary=value)
        case "keep":
            w.edit(rollback={"keep": value})
        case "refresh":
            w.annotations = {"headway.dev/refresh": value}
        case "pass":
            w.pass_()
        case "round":
            w.nodes()
            w.pass_()
            w.acknowledge()
        case "half":  # one router lags behind
            w.nodes()
            w.pass_()
            w.acknowledge(value)
        case "crash":
            try:
                w.pass_(crash_after=value)
            except CrashError:
                w.restart_operator()
        case "nodes":
            w.nodes(seed=value)
        case "acknowledge":
            w.acknowledge(value)
        case "kill":
            w.kill(value)
        case "restart":
            w.restart_operator()
        case "remember":
            w.remember()
        case "vandal":
            w.vandalize(value)
        case "scale":
            w.scale(*value)
        case "delete":  # the first of a kind
            w.objects.pop(min((key for key in w.objects if key[0] == value), default=("", "")), None)
        case "lose-status":
            w.status = {}
        case "wait":
            w.now += value
        case "settle":
            w.settle()


def serves(w: World) -> bool:
    """Whether what the spec asks for can ever be ready."""
    uri, digest = w.spec["artifact"]["uri"], w.spec["artifact"].get("digest")
    return uri != BROKEN and digest in (None, DIGESTS[uri])


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(HISTORIES)
def test_every_history_comes_to_rest_as_the_spec_asks(history: History) -> None:
    comes_to_rest_as_the_spec_asks(history)


@pytest.mark.parametrize("history", FOUND.values(), ids=FOUND.keys())
def test_every_history_that_was_found_does_too(history: History) -> None:
    comes_to_rest_as_the_spec_asks(history)


def comes_to_rest_as_the_spec_asks(history: History) -> None:
    w = world()
    for kind, value in history:
        happen(w, kind, value)
    w.settle()
    w.now += 1200
    w.settle()
    writes = w.writes
    w.now += 1
    w.pass_()
    assert w.writes == writes, "a settled system is written to"
    if not serves(w):
        return
    stable, canary = w.role(Role.STABLE), w.role(Role.CANARY)
    assert stable is not None
    assert w.deployments()[stable] == w.spec.get("replicas", 1)
    if w.status.get("rollout", {}).get("abort"):  # in time it did nothing
        assert w.said("UpToDate")[0] == "False"
        assert "wait" in dict(history)
        return
    assert w.role(Role.INCOMING) is None
    assert w.said("Ready")[0] == "True"
    if digest := w.spec["artifact"].get("digest"):
        assert {pod.digest for pod in w.pods if pod.revision == stable} == {digest}
    wanted = w.spec.get("canary")
    plain = wanted and wanted["artifact"]["uri"] not in (BROKEN, OTHER_SIGNATURE, w.spec["artifact"]["uri"])
    if wanted is None or wanted["artifact"]["uri"] == w.spec["artifact"]["uri"]:
        assert w.weights() == {stable: 100} or canary is not None
        if canary is None:
            assert w.said("UpToDate")[0] == "True"
    elif plain:
        shares = {stable: 100 - wanted["weight"], canary: wanted["weight"]}
        assert w.weights() == {name: weight for name, weight in shares.items() if weight}
        assert w.said("UpToDate")[0] == "True"
    else:
        assert w.weights() == {stable: 100}
        assert w.said("UpToDate")[0] == "False"
    assert not any(each.get("leaving") for each in w.status["revisions"])
    assert w.deployments().keys() == {each["name"] for each in w.status["revisions"]}


@settings(max_examples=EXAMPLES, deadline=None)
@given(HISTORIES)
def test_an_abort_ends_with_the_stable_at_100(history: History) -> None:
    ends_with_the_stable_at_100(history)


@pytest.mark.parametrize("history", FOUND.values(), ids=FOUND.keys())
def test_an_abort_after_a_history_that_was_found_does_too(history: History) -> None:
    ends_with_the_stable_at_100(history)


def ends_with_the_stable_at_100(history: History) -> None:
    w = world(replicas=2)
    w.settle()
    for kind, value in history:
        happen(w, kind, value)
    w.edit(canary=None, artifact={"uri": "s3://m/a"})
    w.settle()
    stable = w.role(Role.STABLE)
    w.edit(artifact={"uri": BROKEN})
    w.settle()
    w.now += 901
    w.nodes()
    w.pass_()
    assert w.published == {stable: 100}
    w.settle()
    assert w.weights() == {stable: 100}
    assert w.said("UpToDate") == ("False", "ProgressDeadlineExceeded")
    assert w.said("Stalled")[0] == "True"
    assert not w.condition("Reconciling")
    w.edit(artifact={"uri": "s3://m/b"})
    w.settle()
    assert w.said("UpToDate")[0] == "True"


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(*LUCK), max_size=20))
def test_the_previous_revision_is_kept_as_long_as_it_should_be(history: History) -> None:
    w = world(replicas=2)
    w.settle()
    old = w.role(Role.STABLE)
    w.edit(artifact={"uri": "s3://m/b"})
    w.settle()
    since = w.now
    for kind, value in history:
        happen(w, kind, value)
        if w.now - since < 24 * 3600 - 100:
            assert old in w.deployments()
    w.settle()  # a lost status starts the clock anew
    w.now += 24 * 3600
    w.settle()
    assert old not in w.deployments()
    assert w.said("RollbackReady") == ("False", "Expired")
