"""A decoder that cannot fit is refused by arithmetic, before a pod of it is made, and never one that has served."""

from typing import Any

import pytest
from headway_api.podconfig import GenerationReport
from headway_operator.observed import Role

from tests.unit.plan_world import World, serving

MIB = 2**20
MEASURED = GenerationReport(
    block_tokens=16,
    blocks=1024,
    blocks_free=1024,
    bytes_per_token=64 * 1024,
    cache_bytes=1024 * MIB,
    max_length=4096,
    sequences=3,
    weights_bytes=500 * MIB,
    step_bytes=100 * MIB,
)


def decoder(**spec: Any) -> World:
    """One that serves, and whose pods have measured it."""
    w = serving(**spec)
    w.generation_report = MEASURED
    return w


def limited(memory: str) -> dict[str, Any]:
    return {"resources": {"limits": {"memory": memory}}}


def test_a_limit_that_holds_not_even_one_sequence_makes_no_pod() -> None:
    w = decoder()
    before = dict(w.deployments())
    w.edit(template=limited("700Mi"), generation={"maxLength": 2048})
    w.settle()
    made = w.deployments().keys() - before.keys()
    assert [w.deployments()[name] for name in made] == [0]
    assert w.said("Accepted") == ("False", "WillNotFit")
    message = w.condition("Accepted")["message"]
    # 2,048 tokens are 128 blocks of 1 MiB, and one more that belongs to nobody
    assert "129 MiB" in message
    assert "729 MiB" in message
    assert "65536 bytes a token" in message
    assert w.said("Ready")[0] == "True", "the version that serves goes on"


def test_what_fits_is_brought_up() -> None:
    w = decoder()
    w.edit(template=limited("729Mi"), generation={"maxLength": 2048})
    w.settle()
    assert w.said("UpToDate") == ("True", "AsSpecified")


@pytest.mark.parametrize(("cache", "fits"), [("64Mi", False), ("65Mi", True)])
def test_a_cache_that_is_asked_for_must_hold_one_sequence(cache: str, fits: bool) -> None:
    w = decoder()
    w.edit(generation={"maxLength": 1024, "cacheBytes": cache})
    w.settle()
    assert w.said("Accepted") == (("True", "Accepted") if fits else ("False", "WillNotFit"))
    assert fits or "spec.generation.cacheBytes is 64Mi" in w.condition("Accepted")["message"]


def test_half_the_bytes_a_token_are_half_the_need() -> None:
    w = decoder()
    w.edit(generation={"maxLength": 1024, "cacheBytes": "33Mi", "cacheType": "BFloat16"})
    w.settle()
    assert w.said("Accepted") == ("True", "Accepted")


@pytest.mark.parametrize(
    "change",
    [
        {"artifact": {"uri": "s3://m/b"}, "generation": {"maxLength": 10_000_000, "cacheBytes": "1Mi"}},
        {"precision": "Int8", "generation": {"maxLength": 10_000_000, "cacheBytes": "1Mi"}},
        {"generation": {"maxLength": 4096}},
    ],
)
def test_what_was_not_measured_is_not_refused(change: dict[str, Any]) -> None:
    w = decoder()
    w.edit(**change)
    w.settle()
    assert w.said("Accepted") == ("True", "Accepted")


def test_a_version_that_has_served_keeps_its_pods_whatever_is_computed() -> None:
    w = decoder(template=limited("700Mi"), generation={"maxLength": 2048})
    w.settle()
    stable = w.role(Role.STABLE)
    w.edit(replicas=2)
    w.settle()
    assert w.deployments() == {stable: 2}
