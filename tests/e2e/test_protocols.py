"""Every protocol through the router of a real cluster, and hot fields that change what a request gets."""

from collections.abc import Iterator

import httpx
import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http

from tests.e2e.cluster_access import wait_until
from tests.e2e.platform import BUCKET, Platform
from tests.e2e.small import BODY, FEATURES, MODEL, Small, small_world

NAMESPACE = "headway-protocols"
X = np.full((1, FEATURES), 0.5, dtype=np.float32)
CALLS = 400


@pytest.fixture(scope="module")
def world(platform: Platform, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Small]:
    with small_world(platform, NAMESPACE, tmp_path_factory.mktemp("protocols"), sandbox="Require") as small:
        yield small


@pytest.fixture
def url(world: Small) -> Iterator[str]:
    with world.platform.access.reach(NAMESPACE, MODEL) as reached:
        yield reached


def grpc_client(url: str) -> tritonclient.grpc.InferenceServerClient:
    host = [("grpc.default_authority", f"{MODEL}.{NAMESPACE}.svc")]  # calls of gRPC go by host
    return tritonclient.grpc.InferenceServerClient(url.removeprefix("http://"), channel_args=host)


def grpc_input() -> list[tritonclient.grpc.InferInput]:
    return [tritonclient.grpc.InferInput("x", list(X.shape), "FP32").set_data_from_numpy(X)]


def test_json_binary_tensors_and_grpc_give_the_same_answer_through_the_service(url: str) -> None:
    answer = httpx.post(f"{url}/v2/models/{MODEL}/infer", json=BODY, timeout=60).json()["outputs"][0]
    expected = np.array(answer["data"], dtype=np.float32).reshape(answer["shape"])
    with tritonclient.http.InferenceServerClient(url.removeprefix("http://")) as client:
        given = tritonclient.http.InferInput("x", list(X.shape), "FP32").set_data_from_numpy(X)
        binary = client.infer(MODEL, [given]).as_numpy(answer["name"])
    with grpc_client(url) as client:
        assert client.is_server_ready()
        called = client.infer(MODEL, grpc_input()).as_numpy(answer["name"])
    np.testing.assert_allclose(binary, expected, rtol=1e-6)
    np.testing.assert_array_equal(binary, called)


def test_a_canary_has_its_share_of_grpc_and_no_call_fails_while_it_comes_and_goes(world: Small, url: str) -> None:
    with grpc_client(url) as client:
        stable = client.infer(MODEL, grpc_input()).get_response().model_version
        world.apply(canary={"artifact": {"uri": f"s3://{BUCKET}/small/2.pt2"}, "weight": 50})
        wait_until(
            "the candidate",
            lambda: client.infer(MODEL, grpc_input()).get_response().model_version != stable,
            seconds=300,
        )
        world.wait("UpToDate", "Routed")
        answered = [client.infer(MODEL, grpc_input()).get_response().model_version for _ in range(CALLS)]
        assert 0.35 < answered.count(stable) / CALLS < 0.65
        world.apply()
        wait_until(
            "the stable version alone",
            lambda: {client.infer(MODEL, grpc_input()).get_response().model_version for _ in range(20)} == {stable},
            seconds=180,
        )
    world.wait("UpToDate", "Routed")


def test_hot_fields_change_what_a_request_gets_and_restart_nothing(world: Small, url: str) -> None:
    stable = world.revision("Stable")
    assert stable
    before = {pod["metadata"]["uid"] for pod in world.pods(stable)}
    hot = {"cache": {"bytes": "1Mi"}, "latencyTarget": "5s"}
    world.apply(batching=hot, limits={"requestBytes": "2Ki"})
    resource = world.wait("KnobsApplied")
    effective = resource["status"]["knobs"]["effective"]
    assert (effective["cache"], effective["latencyTarget"]) == ({"bytes": "1Mi"}, "5s")
    infer = f"{url}/v2/models/{MODEL}/infer"
    answers = [httpx.post(infer, json=BODY, timeout=60) for _ in range(2)]
    assert answers[1].headers["x-headway-cache"] == "hit"
    assert answers[0].json() == answers[1].json()
    assert httpx.post(infer, json=BODY | {"id": "x" * 3000}, timeout=60).status_code == 413
    world.apply()
    world.wait("KnobsApplied")
    assert "x-headway-cache" not in httpx.post(infer, json=BODY, timeout=60).headers
    assert {pod["metadata"]["uid"] for pod in world.pods(stable)} == before


def test_the_status_says_that_nothing_needs_padding(world: Small) -> None:
    resource = world.wait("PaddingProven")
    (condition,) = (each for each in resource["status"]["conditions"] if each["type"] == "PaddingProven")
    assert condition["reason"] == "NothingToPad"
