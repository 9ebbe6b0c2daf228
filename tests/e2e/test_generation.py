"""Text generation in a real cluster, with OpenAI's own client: streams outlive canary, promotion and rollback."""

import contextlib
import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import decoders
from tests.e2e.cluster_access import Object, conditions, is_true, wait_until
from tests.e2e.platform import BUCKET, CREDENTIALS, Platform, publish
from tests.e2e.small import Small
from tests.e2e.talk import Talk, client, stream

NAMESPACE = "headway-generation"
MODEL = "small"
MAX_LENGTH = 512
TOKENS = 300


def manifest(key: str, **spec: Any) -> Object:
    return {
        "apiVersion": "serving.headway.dev/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": MODEL, "namespace": NAMESPACE},
        "spec": {
            "artifact": {"uri": f"s3://{BUCKET}/{key}", "credentials": {"secretName": CREDENTIALS}},
            "device": {"kind": "cpu"},
            "batching": {"policy": "Continuous", "maxBatch": 8},
            "generation": {"maxLength": MAX_LENGTH, "cacheBytes": "16Mi"},
            "rollback": {"keep": "Warm"},
            "template": {
                "sandbox": "Require",
                "resources": {"requests": {"cpu": "50m", "memory": "256Mi"}, "limits": {"memory": "2Gi"}},
            },
            **spec,
        },
    }


@pytest.fixture(scope="module")
def world(platform: Platform, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Small]:
    folder = tmp_path_factory.mktemp("decoders")
    with contextlib.ExitStack() as ending:
        platform.forget(NAMESPACE)
        platform.namespace(NAMESPACE)
        ending.callback(platform.forget, NAMESPACE, wait=False)
        files: dict[str, Path] = {f"{family}.pt2": decoders.tiny(folder, family) for family in ("llama", "qwen3")}
        publish(platform, NAMESPACE, {**files, "smollm2.pt2": decoders.smollm2()})
        small = Small(platform, NAMESPACE)
        small.manifest = manifest("llama.pt2")
        small.apply()
        small.wait("Ready", "Routed", "UpToDate")
        yield small


@pytest.fixture
def url(world: Small) -> Iterator[str]:
    with world.platform.access.reach(NAMESPACE, MODEL) as reached:
        yield reached


def test_pieces_come_through_the_router_as_they_are_made(url: str) -> None:
    told = stream(url, MODEL, "once upon a time", TOKENS)
    assert (told.error, told.finish) == (None, "length")
    assert told.pieces > TOKENS / 4
    assert told.spread > 0.05, "all pieces came at once: somebody has collected them"
    with client(url, MODEL) as asked:
        whole = asked.completions.create(
            model=MODEL, prompt="once upon a time", max_tokens=TOKENS, temperature=0, extra_body={"ignore_eos": True}
        )
    assert whole.choices[0].text == told.text
    assert whole.usage is not None
    assert whole.usage.completion_tokens == TOKENS


def test_the_status_says_what_the_pod_has_room_for(world: Small) -> None:
    told = wait_until("status.generation", lambda: world.resource()["status"].get("generation"), seconds=300)
    assert told["maxLength"] == MAX_LENGTH
    assert told["blocks"] * told["blockTokens"] * told["bytesPerToken"] <= told["cacheBytes"] <= 16 * 2**20
    assert told["sequences"] == (told["blocks"] - 1) // (MAX_LENGTH // told["blockTokens"])
    assert told["kernels"].startswith("native")


def test_no_stream_breaks_while_a_canary_comes_is_promoted_and_rolled_back(world: Small, url: str) -> None:
    stable = world.revision("Stable")
    with Talk(url, MODEL, TOKENS) as talk:
        wait_until("the first streams", lambda: len(talk.told) >= 4, seconds=180)
        world.apply(canary={"artifact": {"uri": f"s3://{BUCKET}/qwen3.pt2"}, "weight": 50})
        world.wait("UpToDate", "Routed")
        canary = world.revision("Canary")
        wait_until("an answer of the canary", lambda: canary in {told.revision for told in talk.told}, seconds=180)
        promoted = copy.deepcopy(world.manifest)
        promoted["spec"]["artifact"]["uri"] = f"s3://{BUCKET}/qwen3.pt2"
        world.platform.access.apply(promoted)
        wait_until("the promotion", lambda: world.revision("Stable") == canary, seconds=180)
        world.wait("UpToDate", "Routed", "RollbackReady")
        world.apply()
        wait_until("the rollback", lambda: world.revision("Stable") == stable, seconds=180)
        world.wait("UpToDate", "Routed")
        world.apply(rollback={"keep": "None"})  # the pods of the other version end, with what they still write
        wait_until("one version", lambda: len(world.resource()["status"]["revisions"]) == 1, seconds=300)
    assert talk.broken == []
    assert {told.revision for told in talk.told} == {stable, canary}
    world.apply()
    world.wait("UpToDate")


def test_knobs_are_acknowledged_while_streams_go_on_and_what_has_no_meaning_is_said(world: Small, url: str) -> None:
    before = {pod["metadata"]["uid"] for pod in world.pods(world.revision("Stable") or "")}
    with Talk(url, MODEL, TOKENS) as talk:
        world.apply(batching={"maxBatch": 2}, generation={"stepTokens": 32, "prefixCache": False})
        effective = world.wait("KnobsApplied")["status"]["knobs"]["effective"]
        assert (effective["maxBatch"], effective["stepTokens"], effective["prefixCache"]) == (2, 32, False)
        world.apply(batching={"maxWait": "5ms"})
        said = world.wait_reason("KnobsApplied", "Clamped")
    assert "spec.batching.maxWait" in said
    assert talk.broken == []
    world.apply()
    world.wait("KnobsApplied")
    assert {pod["metadata"]["uid"] for pod in world.pods(world.revision("Stable") or "")} == before


def test_what_cannot_fit_is_refused_before_a_pod_is_made(world: Small) -> None:
    wait_until("status.generation", lambda: world.resource()["status"].get("generation"), seconds=300)
    world.apply(generation={"maxLength": 1_000_000})
    message = world.wait_reason("Accepted", "WillNotFit")
    assert "No pod is made" in message
    assert "spec.generation.cacheBytes" in message
    incoming = next(each for each in world.resource()["status"]["revisions"] if each["role"] == "Incoming")
    assert world.pods(incoming["name"]) == []
    assert is_true(world.resource(), "Ready")
    world.apply()
    world.wait("UpToDate", "Accepted")


def test_a_policy_that_the_artifact_cannot_do_is_named(world: Small) -> None:
    changed = copy.deepcopy(world.manifest)
    changed["spec"]["batching"] = {"policy": "Dynamic"}
    del changed["spec"]["generation"]
    world.platform.access.apply(changed)
    assert "spec.batching.policy" in world.wait_reason("Accepted", "PolicyMismatch")
    assert conditions(world.resource())["Ready"]["status"] == "True"
    world.platform.access.kubectl("delete", "md", MODEL, "-n", NAMESPACE)
    world.apply()
    world.wait("UpToDate", "Accepted")


def test_a_real_model_in_int8_answers_over_the_chat_api(world: Small) -> None:
    world.platform.access.kubectl("delete", "md", MODEL, "-n", NAMESPACE)
    world.platform.access.apply(manifest("smollm2.pt2", generation={"maxLength": 1024}, precision="Int8"))
    world.wait("UpToDate", seconds=240)
    with world.platform.access.reach(NAMESPACE, MODEL) as url, client(url, MODEL) as asked:
        answer = asked.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "What is the capital of France? Answer in one sentence."}],
            max_tokens=24,
            temperature=0,
        )
    assert "Paris" in (answer.choices[0].message.content or "")
