"""gRPC through the real Envoy to real pods: the weights, pins, fall-overs and ends that HTTP has."""

import asyncio
import contextlib
import signal
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import numpy as np
import pytest
import tritonclient.grpc.aio as triton
from headway_operator.router.intent import Backend, Intent
from headway_runtime.protocols.grpc.proto import health_pb2
from headway_runtime.protocols.grpc.proto import inference_pb2 as pb
from realrouter.pods import RunningPod
from realrouter.served import serve
from realrouter.stage import Stage, reached, stage

from tests.unit.small_models import Encoder, export, prepare

MODEL = "sentiment"
STABLE, CANARY, OLD = "aaaa1111", "bbbb2222", "0000dead"
METHOD = "/inference.GRPCInferenceService/ModelInfer"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    return prepare(export(Encoder, folder / "model.pt2"), folder / "model")


@pytest.fixture
async def router(tmp_path: Path) -> AsyncIterator[Stage]:
    async with stage(tmp_path) as made:
        yield made
        log = made.envoy.log.read_text()
        assert "Unknown field" not in log
        assert "Deprecated" not in log
        assert "rejected" not in log


def split(stable: int, *, old: bool = False) -> Intent:
    """The stable gets `stable` per cent, the candidate the rest; `old`: the stable is from before gRPC."""
    weights = {revision: weight for revision, weight in ((STABLE, stable), (CANARY, 100 - stable)) if weight}
    return Intent(MODEL, STABLE, CANARY, weights, (Backend(STABLE, 256, not old), Backend(CANARY, 256, True)))


def alone(revision: str = STABLE) -> Intent:
    return Intent(MODEL, revision, None, {revision: 100}, (Backend(revision, 256, True),))


def channel(router: Stage, host: str = MODEL) -> grpc.aio.Channel:
    options = [("grpc.default_authority", host), ("grpc.use_local_subchannel_pool", 1)]
    return grpc.aio.insecure_channel(f"127.0.0.1:{router.site.port}", options=options)


def request() -> bytes:
    found = pb.ModelInferRequest(model_name=MODEL)
    for name in ("ids", "mask"):
        found.inputs.add(name=name, datatype="INT64", shape=[1, 3]).contents.int64_contents.extend([1, 2, 3])
    return bytes(found.SerializeToString())


async def pod(
    router: Stage, folder: Path, prepared: Path, revision: str, knobs: str = '{"maxWait": "0ms"}'
) -> RunningPod:
    return await serve(router, folder, prepared, model=MODEL, revision=revision, drain="10s", knobs=knobs)


async def refused(call: grpc.aio.UnaryUnaryCall) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call
    return error.value


@dataclass
class Load:
    """What clients got: answers by revision, and errors."""

    revisions: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)


@contextlib.asynccontextmanager
async def load(router: Stage, workers: int = 4) -> AsyncIterator[Load]:
    """Calls, one after the other by each worker on a channel of its own, while the block runs."""
    found, stop = Load(), asyncio.Event()

    async def worker() -> None:
        async with channel(router) as each:
            infer = each.unary_unary(METHOD)
            while not stop.is_set():
                try:
                    answer = pb.ModelInferResponse.FromString(await infer(request(), timeout=60))
                    found.revisions[answer.model_version] += 1
                except grpc.aio.AioRpcError as error:
                    found.failures.append(f"{error.code()} {error.details()}")
                await asyncio.sleep(0.005)

    tasks = [asyncio.create_task(worker()) for _ in range(workers)]
    try:
        yield found
    finally:
        stop.set()
        await asyncio.gather(*tasks)


async def test_weights_are_exact_pins_are_obeyed_and_every_kind_of_call_goes_through(
    router: Stage, tmp_path: Path, prepared: Path
) -> None:
    await asyncio.gather(*(pod(router, tmp_path, prepared, revision) for revision in (STABLE, CANARY)))
    await router.settle(split(80))
    assert f"{MODEL}/{STABLE}+{CANARY}/grpc" in router.published.clusters

    found: Counter[str] = Counter()
    async with channel(router) as client:
        infer = client.unary_unary(METHOD)

        async def one() -> None:
            found[pb.ModelInferResponse.FromString(await infer(request(), timeout=60)).model_version] += 1

        for _ in range(100):
            await asyncio.gather(*(one() for _ in range(20)))
        # 400 of 2,000 expected, standard deviation 18
        assert found.total() == 2_000
        assert 320 <= found[CANARY] <= 480

        for pin, revision in (("stable", STABLE), ("canary", CANARY), (STABLE, STABLE), (CANARY, CANARY)):
            call = infer(request(), timeout=60, metadata=[("x-headway-revision", pin)])
            assert pb.ModelInferResponse.FromString(await call).model_version == revision
            assert dict(await call.initial_metadata())["x-headway-revision"] == revision
        unknown = await refused(infer(request(), timeout=60, metadata=[("x-headway-revision", "cccc3333")]))
        assert unknown.code() is grpc.StatusCode.NOT_FOUND
        assert "no such revision in service" in (unknown.details() or "")

        bad = await refused(infer(b"\xff\xff", timeout=60))
        assert bad.code() is grpc.StatusCode.INVALID_ARGUMENT
        late = await refused(infer(request(), timeout=60, metadata=[("x-headway-timeout", "0.001ms")]))
        assert late.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        missing = await refused(client.unary_unary("/inference.GRPCInferenceService/Nothing")(b"", timeout=60))
        assert missing.code() is grpc.StatusCode.UNIMPLEMENTED

        check = client.unary_unary("/grpc.health.v1.Health/Check")
        assert health_pb2.HealthCheckResponse.FromString(await check(b"", timeout=60)).status == 1

    async with channel(router, "nobody") as stranger:
        error = await refused(stranger.unary_unary(METHOD)(request(), timeout=60))
        assert error.code() is grpc.StatusCode.NOT_FOUND
        assert dict(error.trailing_metadata() or ())["x-headway-not-admitted"] == "1"

    status, headers, _ = await router.ask(body=b"{}")  # HTTP goes on as before, on the same port and host
    assert (status, headers["content-type"]) == (400, "application/json")

    options = [("grpc.default_authority", f"{MODEL}.prod.svc.cluster.local:80")]
    async with triton.InferenceServerClient(f"127.0.0.1:{router.site.port}", channel_args=options) as client:
        ids = triton.InferInput("ids", [1, 3], "INT64").set_data_from_numpy(np.array([[1, 2, 3]]))
        mask = triton.InferInput("mask", [1, 3], "INT64").set_data_from_numpy(np.array([[1, 1, 1]]))
        result = await client.infer(MODEL, [ids, mask], compression_algorithm="gzip")
        assert result.as_numpy("pooled").shape == (1, 8)

        async def asked() -> AsyncIterator[dict[str, object]]:
            for at in range(3):
                yield {"model_name": MODEL, "inputs": [ids, mask], "request_id": str(at)}

        answers = [answer async for answer in client.stream_infer(asked())]
        assert [error for _, error in answers] == [None] * 3
        assert [result.get_response().id for result, _ in answers] == ["0", "1", "2"]


async def test_a_candidate_that_is_killed_costs_only_the_calls_it_had(
    router: Stage, tmp_path: Path, prepared: Path
) -> None:
    _, candidate = await asyncio.gather(*(pod(router, tmp_path, prepared, revision) for revision in (STABLE, CANARY)))
    await router.settle(split(50))
    async with load(router) as found:
        await reached(lambda: found.revisions[CANARY] > 20, "answers of the candidate")
        await candidate.end(signal.SIGKILL)
        before = found.revisions[STABLE]
        await asyncio.sleep(3)
        await reached(lambda: found.revisions[STABLE] > before + 50, "answers without it")
    assert len(found.failures) <= 4, "one for each client, at most"
    assert all("UNAVAILABLE" in failure for failure in found.failures), found.failures


async def test_pods_that_end_one_after_the_other_cost_no_call(router: Stage, tmp_path: Path, prepared: Path) -> None:
    first = await pod(router, tmp_path, prepared, STABLE)
    await router.settle(alone())
    async with load(router) as found:
        second = await pod(router, tmp_path, prepared, STABLE)
        await router.healthy(f"{MODEL}/{STABLE}/grpc", 2)
        first.process.send_signal(signal.SIGTERM)
        assert await first.process.wait() == 0
        router.pods.dns.records[first.name].remove(first.address)
        await router.healthy(f"{MODEL}/{STABLE}/grpc", 1)
        before = found.revisions.total()
        second.process.send_signal(signal.SIGTERM)  # the only one: it is the last resort until it refuses
        await asyncio.sleep(2)
        assert found.revisions.total() > before
        assert found.failures == []


async def test_a_call_that_a_full_pod_did_not_admit_goes_to_another(
    router: Stage, tmp_path: Path, prepared: Path
) -> None:
    full = '{"maxWait": "1s", "maxBatch": 8, "queue": {"capacity": 1}}'  # one waits, and no other is admitted
    await asyncio.gather(*(pod(router, tmp_path, prepared, STABLE, *more) for more in ((full,), ())))
    await router.settle(alone())
    await router.healthy(f"{MODEL}/{STABLE}/grpc", 2)
    async with channel(router) as client:
        infer = client.unary_unary(METHOD)
        answers = await asyncio.gather(*(infer(request(), timeout=60) for _ in range(40)))
    assert len(answers) == 40
    name = f'envoy_cluster_upstream_rq_retry{{envoy_cluster_name="{MODEL}/{STABLE}/grpc"}}'
    _, stats = await router.envoy.get("/stats/prometheus")
    (retries,) = (int(line.rpartition(" ")[2]) for line in stats.splitlines() if line.startswith(name))
    assert retries > 3


async def test_a_stable_from_before_grpc_keeps_its_share_and_pins_say_so(
    router: Stage, tmp_path: Path, prepared: Path
) -> None:
    await router.pods.start(MODEL, STABLE)
    await pod(router, tmp_path, prepared, CANARY)
    await router.settle(split(100, old=True))
    async with channel(router) as client:
        infer = client.unary_unary(METHOD)
        error = await refused(infer(request(), timeout=60))
        assert error.code() is grpc.StatusCode.UNIMPLEMENTED
        assert "in service have no gRPC" in (error.details() or "")
        assert (await router.ask())[0] == 200
        pinned = infer(request(), timeout=60, metadata=[("x-headway-revision", "canary")])
        assert pb.ModelInferResponse.FromString(await pinned).model_version == CANARY
        error = await refused(infer(request(), timeout=60, metadata=[("x-headway-revision", "stable")]))
        assert error.code() is grpc.StatusCode.UNIMPLEMENTED
        await router.settle(split(50, old=True))
        codes: Counter[object] = Counter()
        for _ in range(60):
            try:
                await infer(request(), timeout=60)
                codes["answered"] += 1
            except grpc.aio.AioRpcError as failed:
                codes[failed.code()] += 1
    assert codes["answered"] > 10
    assert codes[grpc.StatusCode.UNIMPLEMENTED] + codes["answered"] == 60, codes


async def test_without_a_ready_revision_or_a_healthy_pod_calls_are_unavailable_and_not_admitted(router: Stage) -> None:
    await router.settle(Intent(MODEL))
    async with channel(router) as client:
        error = await refused(client.unary_unary(METHOD)(request(), timeout=60))
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        assert "has no revision that is ready" in (error.details() or "")
        assert dict(error.trailing_metadata() or ())["x-headway-not-admitted"] == "1"
