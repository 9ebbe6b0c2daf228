"""Triton's HTTP clients, unchanged, against a served pod: synchronous and with asyncio, in JSON and in binary."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio
from headway_runtime.program import Program, load_program
from tritonclient.utils import InferenceServerException

from tests.unit.http_server import HttpServer, http_server
from tests.unit.pod_process import MODEL, REVISION
from tests.unit.small_models import Encoder, export, prepare


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    folder = tmp_path_factory.mktemp("triton")
    prepared = prepare(export(Encoder, folder / "model.pt2"), folder / "model")
    return load_program(prepared, dimension_names={"sequence": "ids.1"})


@pytest.fixture(scope="module")
def server(program: Program) -> Iterator[HttpServer]:
    with http_server(program, batch=[1, 64], sequence=[64]) as started:
        yield started


@pytest.fixture
def client(server: HttpServer) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(f"127.0.0.1:{server.port}") as client:
        yield client


IDS = np.array([[1, 2, 3], [4, 5, 6]])
MASK = np.array([[1, 1, 0], [1, 1, 1]])


def expected() -> dict[str, Any]:
    with torch.no_grad():
        return {k: v.numpy() for k, v in Encoder().eval()(torch.tensor(IDS), torch.tensor(MASK)).items()}


def inputs(module: Any, *, binary: bool, ids: Any = IDS, mask: Any = MASK) -> list[Any]:
    found = []
    for name, array in (("ids", ids), ("mask", mask)):
        tensor = module.InferInput(name, list(array.shape), "INT64")
        tensor.set_data_from_numpy(array, binary_data=binary)
        found.append(tensor)
    return found


def test_liveness_readiness_and_metadata(client: triton.InferenceServerClient) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready(MODEL)
    assert client.is_model_ready(MODEL, REVISION)
    assert not client.is_model_ready("other")
    assert not client.is_model_ready(MODEL, "ffffffff")
    server = client.get_server_metadata()
    assert (server["name"], "binary_tensor_data" in server["extensions"]) == ("headway", True)
    model = client.get_model_metadata(MODEL)
    assert [(i["name"], i["datatype"], i["shape"]) for i in model["inputs"]] == [
        ("ids", "INT64", [-1, -1]),
        ("mask", "INT64", [-1, -1]),
    ]
    assert client.get_model_metadata(MODEL, REVISION) == model


def test_the_configuration_is_one_that_a_client_of_triton_understands(client: triton.InferenceServerClient) -> None:
    config = client.get_model_config(MODEL)
    assert (config["name"], config["max_batch_size"]) == (MODEL, 64)
    assert config["input"][0] | {"name": "ids", "data_type": "TYPE_INT64", "dims": [-1]} == config["input"][0]
    assert [(o["name"], o["data_type"], o["dims"]) for o in config["output"]] == [
        ("pooled", "TYPE_FP32", [8]),
        ("tokens", "TYPE_FP32", [-1, 8]),
    ]
    assert client.get_model_config(MODEL, REVISION) == config
    with pytest.raises(InferenceServerException, match="not served here"):
        client.get_model_config("other")


@pytest.mark.parametrize("send", [True, False], ids=["binary", "json"])
@pytest.mark.parametrize("receive", [True, False, None], ids=["binary", "json", "default"])
@pytest.mark.parametrize("compression", [None, "gzip", "deflate"])
def test_inference(
    client: triton.InferenceServerClient, send: bool, receive: bool | None, compression: str | None
) -> None:
    wanted = None
    if receive is not None:
        wanted = [triton.InferRequestedOutput(name, binary_data=receive) for name in ("tokens", "pooled")]
    answer = client.infer(
        MODEL,
        inputs(triton, binary=send),
        outputs=wanted,
        request_id="r-1",
        request_compression_algorithm=compression,
        response_compression_algorithm=compression,
    )
    response = answer.get_response()
    assert (response["id"], response["model_name"], response["model_version"]) == ("r-1", MODEL, REVISION)
    for name, value in expected().items():
        np.testing.assert_allclose(answer.as_numpy(name), value, rtol=1e-5, atol=1e-6)
    if wanted:
        assert [o["name"] for o in response["outputs"]] == ["tokens", "pooled"]


@pytest.mark.parametrize("compression", ["gzip", "deflate"])
@pytest.mark.parametrize("binary", [True, False])
def test_long_answers_may_be_compressed(client: triton.InferenceServerClient, compression: str, binary: bool) -> None:
    ids = np.ones((64, 64), dtype=np.int64)
    wanted = [triton.InferRequestedOutput("tokens", binary_data=binary)]
    asked = inputs(triton, binary=binary, ids=ids, mask=ids)
    plain = client.infer(MODEL, asked, outputs=wanted).as_numpy("tokens")
    answer = client.infer(
        MODEL,
        asked,
        outputs=wanted,
        request_compression_algorithm=compression,
        response_compression_algorithm=compression,
    )
    np.testing.assert_allclose(answer.as_numpy("tokens"), plain, rtol=1e-5, atol=1e-6)


def test_asynchronous_inference_on_many_connections(server: HttpServer) -> None:
    with triton.InferenceServerClient(f"127.0.0.1:{server.port}", concurrency=8) as client:
        pending = [client.async_infer(MODEL, inputs(triton, binary=n % 2 == 0), request_id=str(n)) for n in range(40)]
        for number, request in enumerate(pending):
            answer = request.get_result()
            assert answer.get_response()["id"] == str(number)
            np.testing.assert_allclose(answer.as_numpy("pooled"), expected()["pooled"], rtol=1e-5, atol=1e-6)


async def test_the_client_with_asyncio(server: HttpServer) -> None:
    async with triton_aio.InferenceServerClient(f"127.0.0.1:{server.port}") as client:
        assert await client.is_server_live()
        assert await client.is_model_ready(MODEL)
        assert (await client.get_model_metadata(MODEL))["name"] == MODEL
        assert (await client.get_model_config(MODEL))["name"] == MODEL
        for binary in (True, False):
            answer = await client.infer(MODEL, inputs(triton_aio, binary=binary))
            np.testing.assert_allclose(answer.as_numpy("tokens"), expected()["tokens"], rtol=1e-5, atol=1e-6)
        with pytest.raises(InferenceServerException, match="not one of this model's"):
            await client.infer(MODEL, inputs(triton_aio, binary=True), outputs=[triton_aio.InferRequestedOutput("no")])


def test_statistics_count_what_was_asked(client: triton.InferenceServerClient) -> None:
    def counts() -> tuple[int, int, int]:
        (model,) = client.get_inference_statistics(MODEL)["model_stats"]
        return model["inference_count"], model["execution_count"], model["inference_stats"]["success"]["count"]

    before = counts()
    client.infer(MODEL, inputs(triton, binary=True))
    after = counts()
    assert (after[0] - before[0], after[1] - before[1], after[2] - before[2]) == (2, 1, 1)
    assert client.get_inference_statistics()["model_stats"][0]["name"] == MODEL
    (model,) = client.get_inference_statistics(MODEL, REVISION)["model_stats"]
    assert model["inference_stats"]["success"]["ns"] > 0


def test_the_repository_shows_the_one_model_and_changes_nothing(client: triton.InferenceServerClient) -> None:
    (model,) = client.get_model_repository_index()
    assert (model["name"], model["version"], model["state"]) == (MODEL, REVISION, "READY")
    for change in (client.load_model, client.unload_model):
        with pytest.raises(InferenceServerException, match="one revision"):
            change(MODEL)


def test_what_is_not_served_says_so(client: triton.InferenceServerClient) -> None:
    for ask in (
        client.get_system_shared_memory_status,
        client.get_cuda_shared_memory_status,
        client.get_log_settings,
        client.get_trace_settings,
        lambda: client.get_trace_settings(MODEL),
        lambda: client.register_system_shared_memory("a", "b", 1),
        lambda: client.update_log_settings({"log_info": True}),
    ):
        with pytest.raises(InferenceServerException, match="not served here"):
            ask()
    tensor = triton.InferInput("ids", [1, 1], "INT64")
    tensor.set_shared_memory("region", 8)
    with pytest.raises(InferenceServerException, match="shared memory is not served here"):
        client.infer(MODEL, [tensor])


def test_errors_reach_the_client(client: triton.InferenceServerClient) -> None:
    with pytest.raises(InferenceServerException, match="not served here"):
        client.infer("other", inputs(triton, binary=True))
    with pytest.raises(InferenceServerException, match="not served here"):
        client.infer(MODEL, inputs(triton, binary=True), model_version="7")
    with pytest.raises(InferenceServerException, match="input 'mask' is missing"):
        client.infer(MODEL, inputs(triton, binary=True)[:1])
    scores = client.infer(MODEL, inputs(triton, binary=True), priority=1, timeout=10_000_000).as_numpy("pooled")
    assert scores.shape == (2, 8)
