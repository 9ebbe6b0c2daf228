"""The demo's story, asserted: what the README promises, on real pods under real traffic."""

import httpx

from tests import readme
from tests.e2e.cluster_access import Object
from tests.e2e.platform import SYSTEM_NAMESPACE, Platform
from tests.e2e.story import MODEL, Story

NAMESPACE = "headway-story"


def test_a_model_is_deployed_tuned_canaried_promoted_and_rolled_back_without_a_failed_request(
    platform: Platform,
) -> None:
    platform.forget(NAMESPACE)
    platform.namespace(NAMESPACE)
    first, second, hostile = platform.publish(NAMESPACE, print)
    with platform.story(NAMESPACE, first) as story:
        _tell(story, first, second, hostile)
    platform.forget(NAMESPACE, wait=False)


def _tell(story: Story, first: Object, second: Object, hostile: Object) -> None:
    deployed = story.deploy()
    guitar, stocks, unlike, _ = (similarity for _, _, similarity in deployed.similarities)
    assert guitar > 0.5
    assert stocks > 0.5
    assert unlike < 0.3
    assert len(deployed.pods) == 2

    for command in readme.commands("kubectl"):
        assert story.access.run(*command.split(), "-n", NAMESPACE)
    answer = httpx.post(
        f"{story.url}/v2/models/{MODEL}/infer", content=readme.inference_body(), headers={"host": MODEL}, timeout=60
    )
    assert answer.json()["outputs"][0]["shape"] == [1, 384]

    tuned = story.tune(maxWait="5ms", maxBatch=8)
    assert (tuned.effective["maxBatch"], tuned.effective["maxWait"]) == (8, "5ms")
    assert tuned.pods_after == tuned.pods_before == deployed.pods
    assert tuned.restarts == 0

    refused = story.refuse(hostile)
    assert "the example inputs hold more than plain tensors" in refused.message
    assert refused.answered_by == {deployed.stable}

    canaried = story.canary(second, weight=10, count=2000)
    assert canaried.candidate != deployed.stable
    assert abs(canaried.share - 10) <= 2

    promoted = story.promote()
    assert promoted.stable == canaried.candidate
    assert promoted.candidate_pods_before <= promoted.pods_after
    assert promoted.restarts == 0

    back = story.roll_back(first)
    assert back.stable == deployed.stable
    assert back.seconds < 10  # not a figure: loading it anew would take longer

    rested = story.rest(SYSTEM_NAMESPACE, seconds=30)
    assert rested.writes_per_minute == 0

    assert story.requests > 2000
    assert not story.failures
