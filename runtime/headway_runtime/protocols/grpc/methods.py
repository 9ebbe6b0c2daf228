"""Which call is what. A path that is not here answers UNIMPLEMENTED: loading, shared memory, traces, logs."""

from collections.abc import Callable
from typing import Any

from google.protobuf.message import DecodeError

from headway_runtime.errors import InvalidRequestError, RequestError
from headway_runtime.pod import Generator, Pod
from headway_runtime.protocols.grpc import facts
from headway_runtime.protocols.grpc.exchange import Exchange, Receiver
from headway_runtime.protocols.grpc.health import Health
from headway_runtime.protocols.grpc.infer import Infer
from headway_runtime.protocols.grpc.proto import health_pb2, inference_pb2
from headway_runtime.protocols.grpc.stream import StreamInfer
from headway_runtime.protocols.grpc.texts import TextStream
from headway_runtime.protocols.grpc.wire import Status, WireError
from headway_runtime.serving.generate import GenerateService
from headway_runtime.serving.service import Service

SERVICE = "inference.GRPCInferenceService"
_INFER = f"/{SERVICE}/ModelInfer".encode()
_STREAM = f"/{SERVICE}/ModelStreamInfer".encode()

Function = Callable[[Pod, Any], Any]


class Methods:
    """The methods of one pod, by path."""

    def __init__(self, pod: Pod) -> None:
        self._pod = pod
        self._service = Service(pod)
        self._generation = GenerateService(pod)
        self.health = Health(pod, SERVICE)
        pb = inference_pb2
        simple: dict[str, tuple[Any, Function]] = {
            f"/{SERVICE}/ServerLive": (pb.ServerLiveRequest, facts.server_live),
            f"/{SERVICE}/ServerReady": (pb.ServerReadyRequest, facts.server_ready),
            f"/{SERVICE}/ModelReady": (pb.ModelReadyRequest, facts.model_ready),
            f"/{SERVICE}/ServerMetadata": (pb.ServerMetadataRequest, facts.server_metadata),
            f"/{SERVICE}/ModelMetadata": (pb.ModelMetadataRequest, facts.model_metadata),
            f"/{SERVICE}/ModelConfig": (pb.ModelConfigRequest, facts.model_config),
            f"/{SERVICE}/ModelStatistics": (pb.ModelStatisticsRequest, facts.model_statistics),
            f"/{SERVICE}/RepositoryIndex": (pb.RepositoryIndexRequest, facts.repository_index),
            "/grpc.health.v1.Health/Check": (health_pb2.HealthCheckRequest, self.health.check),
        }
        self._simple = {path.encode(): found for path, found in simple.items()}

    def begin(self, exchange: Exchange) -> None:
        """Give a call its receiver. Raises RequestError or WireError to refuse it."""
        path = exchange.metadata[b":path"]
        if path == _INFER:
            config = self._pod.config
            call = Infer(self._service, exchange, config.model, config.revision)
            exchange.begin(call)
            call.admit()
        else:
            exchange.begin(self._receiver(exchange, path))

    def _receiver(self, exchange: Exchange, path: bytes) -> Receiver:
        if (found := self._simple.get(path)) is not None:
            return Simple(exchange, self._pod, *found)
        if path == _STREAM:
            config = self._pod.config
            if isinstance(self._pod.model, Generator):
                return TextStream(self._generation, exchange, config.model, config.revision)
            return StreamInfer(self._service, exchange, config.model, config.revision)
        if path == b"/grpc.health.v1.Health/Watch":
            return self.health.watch(exchange)
        raise WireError(Status.UNIMPLEMENTED, f"{path[:200].decode('latin-1')} is not served here")


class Simple:
    """Receiver of a call that is answered at once."""

    def __init__(self, exchange: Exchange, pod: Pod, kind: Any, answer: Function) -> None:
        self._exchange, self._pod, self._kind, self._answer = exchange, pod, kind, answer
        self._message: bytes | memoryview | None = None
        self.refused: RequestError | None = None

    def message(self, message: bytes | memoryview) -> None:
        """The request."""
        if self._message is not None:
            raise InvalidRequestError("a second message: this method takes one")
        self._message = message

    def half_closed(self) -> None:
        """Answer it."""
        if self._message is None:
            raise InvalidRequestError("the call ended without a message")
        try:
            request = self._kind.FromString(self._message)
        except DecodeError as error:
            raise InvalidRequestError(f"the message is no {self._kind.DESCRIPTOR.name}: {error}") from None
        self._exchange.send(self._answer(self._pod, request).SerializeToString())
        self._exchange.finish(Status.OK)

    def over(self, _: Status | None) -> None:
        """Nothing was begun."""
