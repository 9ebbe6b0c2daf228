"""What a pod says of its model, as Triton's and KServe's clients ask: metadata, configuration, statistics, readiness.

Each function makes the answer to one request. Raises RequestError: another model or version, or not loaded yet.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from headway_api.podconfig import Phase

from headway_runtime.pod import Model, Pod
from headway_runtime.protocols import oip
from headway_runtime.protocols.grpc.asked import check
from headway_runtime.protocols.grpc.proto import inference_pb2 as pb

_BACKEND = "headway"
_TYPES = {name.removeprefix("TYPE_"): value for name, value in pb.DataType.items()}
_TYPES["BYTES"] = pb.TYPE_STRING
_NANOSECONDS = 1e9


def server_live(_: Pod, __: pb.ServerLiveRequest) -> pb.ServerLiveResponse:
    """It answers, so it lives."""
    return pb.ServerLiveResponse(live=True)


def server_ready(pod: Pod, _: pb.ServerReadyRequest) -> pb.ServerReadyResponse:
    """Whether it serves, and does not drain."""
    return pb.ServerReadyResponse(ready=pod.ready)


def model_ready(pod: Pod, request: pb.ModelReadyRequest) -> pb.ModelReadyResponse:
    """The same for its model, by name."""
    check(pod.config.model, pod.config.revision, request.name, request.version)
    return pb.ModelReadyResponse(ready=pod.ready)


def server_metadata(_: Pod, __: pb.ServerMetadataRequest) -> pb.ServerMetadataResponse:
    """As over HTTP."""
    return pb.ServerMetadataResponse(**oip.server_metadata())


def model_metadata(pod: Pod, request: pb.ModelMetadataRequest) -> pb.ModelMetadataResponse:
    """Names, datatypes and shapes, with the batch axis."""
    config = pod.config
    check(config.model, config.revision, request.name, request.version)
    loaded, _ = pod.serving()
    described = loaded.describe()
    return pb.ModelMetadataResponse(
        name=config.model,
        versions=[config.revision],
        platform=oip.PLATFORM,
        inputs=[_tensor(entry) for entry in described["inputs"]],
        outputs=[_tensor(entry) for entry in described["outputs"]],
    )


def model_config(pod: Pod, request: pb.ModelConfigRequest) -> pb.ModelConfigResponse:
    """Triton's configuration of a model that would be served as this one is."""
    check(pod.config.model, pod.config.revision, request.name, request.version)
    loaded, settings = pod.serving()
    described, batched = loaded.describe(), isinstance(loaded, Model) and loaded.layout.batch is not None
    first = 1 if batched else 0
    config = pb.ModelConfig(
        name=pod.config.model,
        platform=oip.PLATFORM,
        backend=_BACKEND,
        max_batch_size=settings.limits.max_batch if batched else 0,
    )
    for entry in described["inputs"]:
        config.input.add(name=entry["name"], data_type=_TYPES[entry["datatype"]], dims=entry["shape"][first:] or [1])
    for entry in described["outputs"]:
        config.output.add(name=entry["name"], data_type=_TYPES[entry["datatype"]], dims=entry["shape"][first:] or [1])
    if batched:
        config.dynamic_batching.max_queue_delay_microseconds = round(settings.limits.max_wait * 1e6)
    return pb.ModelConfigResponse(config=config)


def model_statistics(pod: Pod, request: pb.ModelStatisticsRequest) -> pb.ModelStatisticsResponse:
    """Counts and times since the pod began, from the same metrics that Prometheus reads. No name: its model."""
    config = pod.config
    check(config.model, config.revision, request.name or config.model, request.version)
    sums = _sums(pod)
    statistics = pb.InferStatistics(
        success=_duration(sums, "headway_request_seconds"),
        fail=pb.StatisticDuration(count=pod.failures),
        queue=_duration(sums, "headway_queue_seconds"),
        compute_infer=_duration(sums, "headway_run_seconds"),
        cache_hit=pb.StatisticDuration(count=int(sums["hit"])),
        cache_miss=pb.StatisticDuration(count=int(sums["miss"])),
    )
    return pb.ModelStatisticsResponse(
        model_stats=[
            pb.ModelStatistics(
                name=config.model,
                version=config.revision,
                inference_count=int(sums["headway_batch_rows_sum"]),
                execution_count=int(sums["headway_run_seconds_count"]),
                inference_stats=statistics,
            )
        ]
    )


def repository_index(pod: Pod, request: pb.RepositoryIndexRequest) -> pb.RepositoryIndexResponse:
    """The one model of this pod."""
    answer = pb.RepositoryIndexResponse()
    if pod.ready or not request.ready:
        answer.models.add(
            name=pod.config.model,
            version=pod.config.revision,
            state=_state(pod),
            reason="" if pod.ready else pod.describe(),
        )
    return answer


def _tensor(entry: Mapping[str, Any]) -> pb.ModelMetadataResponse.TensorMetadata:
    """Without what only JSON says."""
    return pb.ModelMetadataResponse.TensorMetadata(name=entry["name"], datatype=entry["datatype"], shape=entry["shape"])


def _state(pod: Pod) -> str:
    if pod.ready:
        return "READY"
    return {Phase.FAILED: "UNAVAILABLE", Phase.DRAINING: "UNLOADING"}.get(pod.phase, "LOADING")


def _duration(sums: Counter[str], histogram: str) -> pb.StatisticDuration:
    return pb.StatisticDuration(count=int(sums[f"{histogram}_count"]), ns=int(sums[f"{histogram}_sum"] * _NANOSECONDS))


def _sums(pod: Pod) -> Counter[str]:
    """Every sample by name, over its labels; what the response cache did, by its outcome."""
    sums: Counter[str] = Counter()
    for family in pod.metrics.registry.collect():
        for sample in family.samples:
            if sample.name.endswith("_created"):  # when it began to count
                continue
            sums[sample.labels.get("outcome", sample.name)] += sample.value  # type: ignore[assignment]
    return sums
