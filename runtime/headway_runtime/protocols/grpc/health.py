"""gRPC's health protocol: Check answers, Watch goes on answering whenever that changes."""

import asyncio
from collections.abc import Callable

from google.protobuf.message import DecodeError

from headway_runtime.errors import InvalidRequestError, RequestError, UnknownModelError
from headway_runtime.pod import Pod
from headway_runtime.protocols.grpc.exchange import Exchange
from headway_runtime.protocols.grpc.proto import health_pb2 as pb
from headway_runtime.protocols.grpc.wire import Status

LOOK_SECONDS = 0.1  # between looks at the pod while somebody watches


class Health:
    """What the pod says of itself as a whole (no name), and of its inference service."""

    def __init__(self, pod: Pod, service: str) -> None:
        self._pod = pod
        self._names = ("", service)
        self._watchers: dict[Exchange, pb.HealthCheckResponse.ServingStatus | None] = {}
        self._look: asyncio.TimerHandle | None = None

    def check(self, _: Pod, request: pb.HealthCheckRequest) -> pb.HealthCheckResponse:
        """Raises UnknownModelError for a service that is not here."""
        if request.service not in self._names:
            raise UnknownModelError(f"service {request.service[:100]!r} is not served here")
        return pb.HealthCheckResponse(status=self._status())

    def watch(self, exchange: Exchange) -> "Watcher":
        """A call that watches."""
        return Watcher(exchange, self._joined, self._left)

    def tell(self) -> None:
        """Tell the watchers what has changed."""
        status = self._status()
        for exchange in [exchange for exchange, told in self._watchers.items() if told != status]:
            if exchange in self._watchers:  # what was told before may have ended others
                self._watchers[exchange] = status
                exchange.send(pb.HealthCheckResponse(status=status).SerializeToString())

    def close(self) -> None:
        """End every watch: the pod ends."""
        for exchange in list(self._watchers):
            exchange.finish(Status.UNAVAILABLE, "the pod has ended")

    def _status(self) -> pb.HealthCheckResponse.ServingStatus:
        return pb.HealthCheckResponse.SERVING if self._pod.ready else pb.HealthCheckResponse.NOT_SERVING

    def _joined(self, exchange: Exchange, service: str) -> None:
        if service not in self._names:  # a watch is kept: the service might come. Not so here, but it is the protocol
            exchange.send(pb.HealthCheckResponse(status=pb.HealthCheckResponse.SERVICE_UNKNOWN).SerializeToString())
            return
        self._watchers[exchange] = None
        self.tell()
        if self._look is None:
            self._schedule()

    def _left(self, exchange: Exchange) -> None:
        self._watchers.pop(exchange, None)

    def _schedule(self) -> None:
        self._look = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._again)

    def _again(self) -> None:
        self._look = None
        if self._watchers:
            self.tell()
            self._schedule()


class Watcher:
    """Receiver of one Watch call."""

    def __init__(
        self, exchange: Exchange, joined: Callable[[Exchange, str], None], left: Callable[[Exchange], None]
    ) -> None:
        self._exchange = exchange
        self._joined, self._left = joined, left
        self._asked = False
        self.refused: RequestError | None = None

    def message(self, message: bytes | memoryview) -> None:
        """What to watch."""
        if self._asked:
            raise InvalidRequestError("a second message: Watch takes one")
        self._asked = True
        try:
            service = pb.HealthCheckRequest.FromString(message).service
        except DecodeError as error:
            raise InvalidRequestError(f"the message is no HealthCheckRequest: {error}") from None
        self._joined(self._exchange, service)

    def half_closed(self) -> None:
        """The client has nothing more to say, and goes on listening."""
        if not self._asked:
            raise InvalidRequestError("the call ended without a message")

    def over(self, _: Status | None) -> None:
        """It watches no more."""
        self._left(self._exchange)
