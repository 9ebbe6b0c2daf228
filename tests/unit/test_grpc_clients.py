"""A real pod over gRPC, asked by `tritonclient` as it is, blocking and asyncio, and by plain gRPC channels."""

import asyncio
import os
import queue
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import torch
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from headway_runtime.errors import ProgramFailedError
from headway_runtime.prepare import run
from headway_runtime.protocols.grpc.proto import health_pb2
from headway_runtime.protocols.grpc.proto import inference_pb2 as pb
from headway_runtime.protocols.grpc.wire import Status, status_of
from torch.export import Dim
from tritonclient.utils import InferenceServerException

from tests.unit.pod_process import MODEL, REVISION, PodProcess, pod, until
from tests.unit.small_models import Encoder, export, prepare

SERVICE = "/inference.GRPCInferenceService"
DTYPES = [
    *(torch.bool, torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.int8, torch.int16, torch.int32),
    *(torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64),
]


class Copies(torch.nn.Module):
    """One input of every datatype, [batch, 2]; each comes back."""

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(each.clone() for each in inputs)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PodProcess]:
    folder = tmp_path_factory.mktemp("grpc")
    with pod(folder, prepare(export(Encoder, folder / "model.pt2"), folder / "model")) as found:
        found.wait_for_phase()
        yield found


@pytest.fixture
def client(encoder: PodProcess) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(encoder.grpc) as found:
        yield found


@pytest.fixture
def channel(encoder: PodProcess) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(encoder.grpc) as found:
        yield found


def inputs(ids: list[list[int]], *, library: Any = triton) -> list[Any]:
    found = []
    for name, values in (("ids", ids), ("mask", np.ones_like(ids))):
        each = library.InferInput(name, [len(ids), len(ids[0])], "INT64")
        each.set_data_from_numpy(np.array(values, dtype=np.int64))
        found.append(each)
    return found


def typed(ids: list[int], **fields: Any) -> pb.ModelInferRequest:
    request = pb.ModelInferRequest(model_name=MODEL, **fields)
    for name, values in (("ids", ids), ("mask", [1] * len(ids))):
        request.inputs.add(name=name, datatype="INT64", shape=[1, len(ids)]).contents.int64_contents.extend(values)
    return request


def call(channel: grpc.Channel, request: pb.ModelInferRequest, **options: Any) -> pb.ModelInferResponse:
    method = channel.unary_unary(
        f"{SERVICE}/ModelInfer",
        request_serializer=pb.ModelInferRequest.SerializeToString,
        response_deserializer=pb.ModelInferResponse.FromString,
    )
    return method(request, timeout=options.pop("timeout", 60), **options)


def http_answer(encoder: PodProcess, ids: list[list[int]]) -> Any:
    from tests.unit.pod_process import question

    return encoder.client.post(encoder.infer, json=question(ids)).json()["outputs"][0]["data"]


def test_the_server_the_model_and_its_metadata_are_as_over_http(
    encoder: PodProcess, client: triton.InferenceServerClient
) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready(MODEL)
    assert client.is_model_ready(MODEL, REVISION)
    assert client.get_server_metadata().name == "headway"
    found = client.get_model_metadata(MODEL, as_json=True)
    wanted = encoder.client.get(f"{encoder.url}/v2/models/{MODEL}").json()
    assert (found["name"], found["versions"], found["platform"]) == (MODEL, [REVISION], wanted["platform"])
    for side in ("inputs", "outputs"):
        shapes = [{**each, "shape": [str(size) for size in each["shape"]]} for each in wanted[side]]
        assert found[side] == shapes


def test_the_configuration_says_how_requests_are_batched(client: triton.InferenceServerClient) -> None:
    config = client.get_model_config(MODEL).config
    assert (config.name, config.backend) == (MODEL, "headway")
    assert config.max_batch_size > 1
    assert config.HasField("dynamic_batching")
    assert [(each.name, each.data_type, list(each.dims)) for each in config.input] == [
        ("ids", 9, [-1]),
        ("mask", 9, [-1]),
    ]
    assert [(each.name, each.data_type, list(each.dims)) for each in config.output] == [
        ("pooled", 11, [8]),
        ("tokens", 11, [-1, 8]),
    ]


def test_inference_answers_with_what_http_answers(encoder: PodProcess, client: triton.InferenceServerClient) -> None:
    result = client.infer(MODEL, inputs([[1, 2, 3], [4, 5, 6]]), request_id="seven", model_version=REVISION)
    response = result.get_response()
    assert (response.id, response.model_name, response.model_version) == ("seven", MODEL, REVISION)
    pooled = result.as_numpy("pooled")
    assert pooled.shape == (2, 8)
    np.testing.assert_allclose(pooled.reshape(-1), http_answer(encoder, [[1, 2, 3], [4, 5, 6]]), rtol=1e-6)


def test_only_the_wanted_outputs_come(client: triton.InferenceServerClient) -> None:
    wanted = [triton.InferRequestedOutput("tokens")]
    result = client.infer(MODEL, inputs([[1, 2]]), outputs=wanted)
    assert [output.name for output in result.get_response().outputs] == ["tokens"]


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_requests_and_answers_are_compressed_when_the_client_compresses(
    client: triton.InferenceServerClient, algorithm: str
) -> None:
    plain = client.infer(MODEL, inputs([[7] * 100] * 8)).as_numpy("tokens")
    packed = client.infer(MODEL, inputs([[7] * 100] * 8), compression_algorithm=algorithm).as_numpy("tokens")
    np.testing.assert_array_equal(plain, packed)


def test_long_compressed_messages_are_unpacked_beside_the_event_loop_and_in_order(
    encoder: PodProcess, client: triton.InferenceServerClient
) -> None:
    note = {"note": os.urandom(20_000).hex()}  # 20 kB compressed
    result = client.infer(MODEL, inputs([[1, 2]]), compression_algorithm="gzip", parameters=note)
    assert result.as_numpy("pooled").shape == (1, 8)
    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)), compression_algorithm="gzip")
    try:
        for at in range(6):
            more = {"parameters": note} if at % 2 == 0 else {}
            client.async_stream_infer(MODEL, inputs([[at, 2]]), request_id=str(at), **more)
        found = [answers.get(timeout=60) for _ in range(6)]
    finally:
        client.stop_stream()
    assert [result.get_response().id for result, _ in found] == [str(at) for at in range(6)]
    encoder.apply_knobs({"maxWait": "0ms", "requestBytes": "32Ki"})
    try:
        with pytest.raises(InferenceServerException, match="more than 32768 bytes once unpacked") as refused:
            client.infer(MODEL, inputs([[1, 2]]), compression_algorithm="gzip", parameters=note)
        assert refused.value.status() == "StatusCode.RESOURCE_EXHAUSTED"
    finally:
        encoder.apply_knobs({"maxWait": "0ms"})


def test_many_requests_at_once_are_answered_each_with_its_own(client: triton.InferenceServerClient) -> None:
    answers: queue.Queue[tuple[int, Any, Any]] = queue.Queue()
    for at in range(40):
        ids = [[at % 50, (at + 1) % 50]]
        client.async_infer(
            MODEL, inputs(ids), lambda result, error, at=at: answers.put((at, result, error)), request_id=str(at)
        )
    found = {}
    for _ in range(40):
        at, result, error = answers.get(timeout=60)
        assert error is None
        assert result.get_response().id == str(at)
        found[at] = result.as_numpy("pooled")
    alone = client.infer(MODEL, inputs([[5, 6]])).as_numpy("pooled")
    np.testing.assert_allclose(found[5], alone, rtol=1e-5)
    assert not np.allclose(found[4], alone)


async def test_the_asyncio_client_works_as_it_is(encoder: PodProcess) -> None:
    async with triton_aio.InferenceServerClient(encoder.grpc) as client:
        assert await client.is_server_ready()
        assert await client.is_model_ready(MODEL)
        assert (await client.get_model_metadata(MODEL)).name == MODEL
        asked = (client.infer(MODEL, inputs([[at, 2]], library=triton_aio)) for at in range(20))
        results = await asyncio.gather(*asked)
        assert len({result.as_numpy("pooled").tobytes() for result in results}) == 20
        packed = await client.infer(MODEL, inputs([[1, 2]]), compression_algorithm="gzip")
        np.testing.assert_allclose(packed.as_numpy("pooled"), results[1].as_numpy("pooled"), rtol=1e-5)


def test_statistics_count_what_was_asked(client: triton.InferenceServerClient) -> None:
    def counted() -> tuple[int, int, int]:
        (found,) = client.get_inference_statistics(MODEL).model_stats
        assert (found.name, found.version) == (MODEL, REVISION)
        return found.inference_count, found.inference_stats.success.count, found.inference_stats.success.ns

    rows, successes, spent = counted()
    client.infer(MODEL, inputs([[1, 2], [3, 4], [5, 6]]))
    until(lambda: counted()[0] > rows, "the count")
    assert counted()[:2] == (rows + 3, successes + 1)
    assert counted()[2] > spent


def test_the_index_holds_the_one_model(client: triton.InferenceServerClient) -> None:
    (found,) = client.get_model_repository_index().models
    assert (found.name, found.version, found.state) == (MODEL, REVISION, "READY")


@pytest.mark.parametrize(
    "ask",
    [
        lambda client: client.load_model(MODEL),
        lambda client: client.unload_model(MODEL),
        lambda client: client.get_system_shared_memory_status(),
        lambda client: client.register_cuda_shared_memory("a", b"YWJj", 0, 8),
        lambda client: client.get_trace_settings(),
        lambda client: client.get_log_settings(),
    ],
)
def test_what_a_pod_does_not_do_is_unimplemented(client: triton.InferenceServerClient, ask: Any) -> None:
    with pytest.raises(InferenceServerException, match="is not served here") as refused:
        ask(client)
    assert refused.value.status() == "StatusCode.UNIMPLEMENTED"


@pytest.mark.parametrize(
    ("model", "version"), [("other", ""), (MODEL, "ffffffff"), (MODEL, "1")], ids=["model", "revision", "number"]
)
def test_another_model_or_version_is_not_found(client: triton.InferenceServerClient, model: str, version: str) -> None:
    for ask in (
        lambda: client.infer(model, inputs([[1]]), model_version=version),
        lambda: client.get_model_metadata(model, version),
        lambda: client.get_model_config(model, version),
        lambda: client.get_inference_statistics(model, version),
        lambda: client.is_model_ready(model, version),
    ):
        with pytest.raises(InferenceServerException, match=f"this pod serves model '{MODEL}'") as refused:
            ask()
        assert refused.value.status() == "StatusCode.NOT_FOUND"


def test_errors_name_the_input_and_what_is_allowed(client: triton.InferenceServerClient) -> None:
    wrong = triton.InferInput("ids", [1, 2], "FP32").set_data_from_numpy(np.ones((1, 2), dtype=np.float32))
    with pytest.raises(InferenceServerException, match="input 'ids': 'datatype' must be INT64, not FP32") as refused:
        client.infer(MODEL, [wrong, inputs([[1, 2]])[1]])
    assert refused.value.status() == "StatusCode.INVALID_ARGUMENT"
    with pytest.raises(InferenceServerException, match="input 'mask' is missing"):
        client.infer(MODEL, inputs([[1, 2]])[:1])
    texts = triton.InferInput("ids", [1, 1], "BYTES").set_data_from_numpy(np.array([["a"]], dtype=np.object_))
    with pytest.raises(InferenceServerException, match=r"input 'ids': .*BYTES"):
        client.infer(MODEL, [texts, inputs([[1]])[1]])


def test_ids_that_the_model_does_not_know_are_the_clients_mistake(client: triton.InferenceServerClient) -> None:
    with pytest.raises(InferenceServerException, match="input 'ids' holds 1000; the model knows 0 to 49") as refused:
        client.infer(MODEL, inputs([[1000, 2]]))
    assert refused.value.status() == "StatusCode.INVALID_ARGUMENT"


def test_a_program_that_raises_is_an_internal_error() -> None:
    assert status_of(ProgramFailedError.status) is Status.INTERNAL


def test_typed_contents_are_answered_in_kind_and_raw_ones_raw(encoder: PodProcess, channel: grpc.Channel) -> None:
    response = call(channel, typed([1, 2, 3], id="t"))
    assert not response.raw_output_contents
    assert list(response.outputs[0].shape) == [1, 8]
    np.testing.assert_allclose(
        list(response.outputs[0].contents.fp32_contents), http_answer(encoder, [[1, 2, 3]]), rtol=1e-6
    )
    raw = pb.ModelInferRequest(model_name=MODEL, raw_input_contents=[np.int64([1, 2, 3]).tobytes()] * 2)
    for name in ("ids", "mask"):
        raw.inputs.add(name=name, datatype="INT64", shape=[1, 3])
    answered = call(channel, raw)
    assert len(answered.raw_output_contents) == 2
    assert not answered.outputs[0].HasField("contents")


def test_answers_name_the_revision_the_queue_time_and_the_batch(channel: grpc.Channel) -> None:
    method = channel.unary_unary(
        f"{SERVICE}/ModelInfer", request_serializer=pb.ModelInferRequest.SerializeToString, response_deserializer=bytes
    )
    _, told = method.with_call(typed([1, 2]), timeout=60)
    assert dict(told.initial_metadata())["x-headway-revision"] == REVISION
    trailing = dict(told.trailing_metadata())
    assert float(trailing["x-headway-queue-ms"]) >= 0
    assert trailing["x-headway-batch-size"] == "1"


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("x-headway-timeout", "soon", "x-headway-timeout"),
        ("x-headway-priority", "urgent", "is not one of low, normal, high"),
    ],
)
def test_metadata_that_cannot_be_read_is_refused(channel: grpc.Channel, name: str, value: str, says: str) -> None:
    with pytest.raises(grpc.RpcError, match=says) as refused:
        call(channel, typed([1]), metadata=[(name, value)])
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("priority", ["low", "normal", "HIGH"])
def test_every_priority_is_taken(channel: grpc.Channel, priority: str) -> None:
    assert call(channel, typed([1]), metadata=[("x-headway-priority", priority)]).outputs


@pytest.mark.parametrize("how", ["metadata", "parameter"])
def test_a_request_that_does_not_start_in_time_misses_its_deadline(channel: grpc.Channel, how: str) -> None:
    request, metadata = typed([1, 2]), []
    if how == "metadata":
        metadata = [("x-headway-timeout", "0.001ms")]
    else:
        request.parameters["timeout"].int64_param = 1  # microseconds
    with pytest.raises(grpc.RpcError, match="the deadline passed") as late:
        call(channel, request, metadata=metadata)
    assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


def test_a_full_line_says_when_to_come_back_and_that_no_model_has_seen_the_request(
    encoder: PodProcess, channel: grpc.Channel
) -> None:
    encoder.apply_knobs({"maxWait": "20s", "maxBatch": 8, "queue": {"capacity": 1, "timeout": "30s"}})
    try:
        method = channel.unary_unary(
            f"{SERVICE}/ModelInfer",
            request_serializer=pb.ModelInferRequest.SerializeToString,
            response_deserializer=pb.ModelInferResponse.FromString,
        )
        waiting = method.future(typed([1, 2]), timeout=60)
        until(lambda: _metric(encoder, "headway_queue_rows") == 1, "the first in line")
        with pytest.raises(grpc.RpcError) as full:
            call(channel, typed([1, 2]))
        assert full.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        trailing = dict(full.value.trailing_metadata())
        assert int(trailing["retry-after"]) >= 1
        assert trailing["x-headway-not-admitted"] == "1"
        with pytest.raises(grpc.RpcError) as unread:
            channel.unary_unary(f"{SERVICE}/ModelInfer")(b"\xff", timeout=10)
        assert unread.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED, "it is refused before it is read"
        waiting.cancel()
    finally:
        encoder.apply_knobs({"maxWait": "0ms"})


def test_a_call_that_is_taken_back_leaves_the_line_and_counts_as_gone(
    encoder: PodProcess, channel: grpc.Channel
) -> None:
    encoder.apply_knobs({"maxWait": "20s", "maxBatch": 8, "queue": {"timeout": "30s"}})
    try:
        method = channel.unary_unary(f"{SERVICE}/ModelInfer")
        waiting = method.future(typed([1, 2]).SerializeToString(), timeout=60)
        until(lambda: _metric(encoder, "headway_queue_rows") == 1, "the call in line")
        gone = _metric(encoder, 'headway_rejections_total{reason="client_gone"}')
        waiting.cancel()
        until(lambda: _metric(encoder, "headway_queue_rows") == 0, "its departure")
        until(lambda: _metric(encoder, 'headway_rejections_total{reason="client_gone"}') == gone + 1, "the count")
        until(lambda: _metric(encoder, "headway_requests_in_flight") == 0, "silence")
    finally:
        encoder.apply_knobs({"maxWait": "0ms"})


def test_a_message_beyond_the_knob_is_refused_and_one_within_it_is_answered(
    encoder: PodProcess, client: triton.InferenceServerClient
) -> None:
    encoder.apply_knobs({"maxWait": "0ms", "requestBytes": "4Ki"})
    try:
        assert client.infer(MODEL, inputs([[1] * 100])).as_numpy("pooled").shape == (1, 8)
        for algorithm in (None, "gzip"):  # which is small when it arrives
            with pytest.raises(InferenceServerException, match="at most 4096 are read") as refused:
                client.infer(MODEL, inputs([[1] * 128] * 8), compression_algorithm=algorithm)
            assert refused.value.status() == "StatusCode.RESOURCE_EXHAUSTED"
    finally:
        encoder.apply_knobs({"maxWait": "0ms"})


def test_health_is_checked_by_name_and_watched(channel: grpc.Channel) -> None:
    check = channel.unary_unary(
        "/grpc.health.v1.Health/Check",
        request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
        response_deserializer=health_pb2.HealthCheckResponse.FromString,
    )
    for name in ("", "inference.GRPCInferenceService"):
        answer = check(health_pb2.HealthCheckRequest(service=name), timeout=60)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    with pytest.raises(grpc.RpcError) as unknown:
        check(health_pb2.HealthCheckRequest(service="other"), timeout=60)
    assert unknown.value.code() is grpc.StatusCode.NOT_FOUND
    watch = channel.unary_stream(
        "/grpc.health.v1.Health/Watch",
        request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
        response_deserializer=health_pb2.HealthCheckResponse.FromString,
    )
    watching = watch(health_pb2.HealthCheckRequest(), timeout=60)
    assert next(watching).status == health_pb2.HealthCheckResponse.SERVING
    watching.cancel()
    unknown_watch = watch(health_pb2.HealthCheckRequest(service="other"), timeout=60)
    assert next(unknown_watch).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
    unknown_watch.cancel()


def test_a_stream_answers_in_order_and_an_error_ends_nothing(client: triton.InferenceServerClient) -> None:
    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)))
    try:
        asked = [[[1, 2]], [[1000, 1]], [[3, 4, 5]], [[1, 2]]]
        for at, ids in enumerate(asked):
            client.async_stream_infer(MODEL, inputs(ids), request_id=str(at), enable_empty_final_response=True)
        found = [answers.get(timeout=60) for _ in asked]
    finally:
        client.stop_stream()
    assert [result.get_response().id for result, error in found if error is None] == ["0", "2", "3"]
    assert "the model knows 0 to 49" in str(found[1][1])
    first, last = found[0][0], found[3][0]
    np.testing.assert_allclose(first.as_numpy("pooled"), last.as_numpy("pooled"), rtol=1e-6)
    assert first.get_response().parameters["triton_final_response"].bool_param


def test_every_datatype_goes_through_a_program_and_comes_back(tmp_path: Path) -> None:
    values = tuple(torch.tensor([[0, 1], [1, 0]]).to(dtype) for dtype in DTYPES)
    shapes = (tuple({0: Dim("batch", min=1, max=8)} for _ in DTYPES),)
    torch.export.save(torch.export.export(Copies(), values, dynamic_shapes=shapes), tmp_path / "copies.pt2")
    run.prepare((tmp_path / "copies.pt2").as_uri(), tmp_path / "model", pinned=None, credentials=Path("/nonexistent"))
    with pod(tmp_path, tmp_path / "model", batching={"shapeBuckets": {"batch": [2]}}) as copies:
        copies.wait_for_phase()
        with triton.InferenceServerClient(copies.grpc) as client, grpc.insecure_channel(copies.grpc) as channel:
            metadata = client.get_model_metadata(MODEL)
            request = pb.ModelInferRequest(model_name=MODEL)
            for entry, value in zip(metadata.inputs, values, strict=True):
                request.inputs.add(name=entry.name, datatype=entry.datatype, shape=[2, 2])
                request.raw_input_contents.append(bytes(value.view(torch.uint8).numpy().tobytes()))
            response = call(channel, request)
    assert [output.datatype for output in response.outputs] == [each.datatype for each in metadata.inputs]
    assert len({output.datatype for output in response.outputs}) == len(DTYPES)
    assert list(response.raw_output_contents) == list(request.raw_input_contents)


def test_clients_that_come_and_go_leave_nothing(encoder: PodProcess) -> None:
    def once() -> None:
        with triton.InferenceServerClient(encoder.grpc) as client:
            client.infer(MODEL, inputs([[1, 2]]))

    threads = [threading.Thread(target=once) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    until(lambda: _metric(encoder, "headway_requests_in_flight") == 0, "silence")
    assert encoder.process.poll() is None


def _metric(encoder: PodProcess, name: str) -> float:
    lines = encoder.admin("/metrics").text.splitlines()
    return next((float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{name} ")), 0.0)
