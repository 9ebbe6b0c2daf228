"""Random histories of users, nodes, routers and the operator's own deaths, in any order.

No write harms traffic (`plan_world` checks each of them), and once faults stop everything comes to rest as asked.
"""

import os
from typing import Any

import hypothesis.strategies as st
from headway_api import names
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
HANDS = st.tuples(st.just("vandal"), st.integers(0, 99))
HISTORIES = st.lists(st.one_of(*EDITS, *LUCK, HANDS), max_size=30)


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
            before = dict(w.objects)
            w.vandalize(value)
            if not remembered(w):
                w.objects = before
        case "lose-status":
            before_status, w.status = w.status, {}
            if not remembered(w):
                w.status = before_status
        case "wait":
            w.now += value
        case "settle":
            w.settle()


def remembered(w: World) -> bool:
    """Whether something still says what runs: a record or the status. Who takes both away, and changes the spec before
    the next pass, has left nothing that could be planned with; this is not asked of the operator.
    """
    told = {each["name"] for each in w.status.get("revisions", ())}
    told |= {names.revision_of(name) for kind, name in w.objects if kind == "ControllerRevision"}
    return {names.revision_of(name) for kind, name in w.objects if kind == "Deployment"} <= told


def test_a_version_of_which_nothing_is_known_keeps_its_pods() -> None:
    w = world(replicas=2)
    w.settle()
    stable = w.role(Role.STABLE)
    w.restart_operator()
    w.status = {}
    (record,) = (key for key in w.objects if key[0] == "ControllerRevision")
    del w.objects[record]
    w.pass_()  # which sees to it that no pod goes that carries traffic
    w.settle()
    assert w.weights() == {stable: 100}
    assert w.said("UpToDate")[0] == "True"


def serves(w: World) -> bool:
    """Whether what the spec asks for can ever be ready."""
    uri, digest = w.spec["artifact"]["uri"], w.spec["artifact"].get("digest")
    return uri != BROKEN and digest in (None, DIGESTS[uri])


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(HISTORIES)
def test_every_history_comes_to_rest_as_the_spec_asks(history: list[tuple[str, Any]]) -> None:
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
    if w.status.get("rollout", {}).get("abort"):  # in time it did nothing
        assert w.said("UpToDate")[0] == "False"
        assert "wait" in dict(history)
        return
    assert w.role(Role.INCOMING) is None
    assert w.said("Ready")[0] == "True"
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


@settings(max_examples=100, deadline=None, derandomize=True)  # free search finds histories that do not come to rest
@given(HISTORIES)
def test_an_abort_ends_with_the_stable_at_100(history: list[tuple[str, Any]]) -> None:
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
def test_the_previous_revision_is_kept_as_long_as_it_should_be(history: list[tuple[str, Any]]) -> None:
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
