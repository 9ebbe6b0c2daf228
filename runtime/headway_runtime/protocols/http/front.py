"""What all connections of the inference port share: the way to the model, and what their bodies may hold together."""

from concurrent.futures import ThreadPoolExecutor

import orjson

from headway_runtime.errors import (
    BodiesFullError,
    InvalidRequestError,
    NotServingError,
    RequestError,
    UnknownModelError,
)
from headway_runtime.pod import Pod
from headway_runtime.protocols import oip, tensors
from headway_runtime.protocols.http.answers import Answers
from headway_runtime.protocols.http.asgi import Headers
from headway_runtime.protocols.http.routes import GENERATE, Routes
from headway_runtime.protocols.openai.errors import not_served
from headway_runtime.protocols.openai.prompts import PromptRoom
from headway_runtime.served import Served
from headway_runtime.serving.generate import GenerateService
from headway_runtime.serving.service import Service

WORKERS = 2  # threads that read large bodies
BODIES = 4  # times the largest body: bytes of all requests that are being read


class Front:
    """One for each pod."""

    def __init__(self, pod: Pod) -> None:
        model, revision = pod.config.model, pod.config.revision
        self.pod = pod
        self.service = Service(pod)
        self.generation = GenerateService(pod)
        self.prompts = PromptRoom()
        self.routes = Routes(model, revision)
        self.answers = Answers(revision)
        self.identity = oip.identify(model, revision)
        self.workers = ThreadPoolExecutor(WORKERS, "headway-bodies")
        self._model: Served | None = None
        self._in_binary_only: dict[str, str] = {}  # of that model's outputs, by name
        self._held = 0  # bytes of bodies that are being read

    @property
    def max_body(self) -> int:
        """Bytes of a request, as it comes and when it is decompressed; 0 before there are knobs."""
        settings = self.pod.settings
        return 0 if settings is None else settings.request_bytes

    def too_early(self) -> RequestError | None:
        """Why a request is refused that comes before there are knobs, however large it is."""
        return None if self.pod.settings is not None else NotServingError(self.pod.describe())

    def hold(self, size: int) -> None:
        """So many more bytes of bodies are held, or fewer. Raises BodiesFullError when they are too many."""
        self._held += size
        if size > 0 and self._held > BODIES * self.max_body:
            raise BodiesFullError(f"{BODIES * self.max_body} bytes of requests are being read", retry_after=1)

    def check(self, question: oip.Question) -> None:
        """Raises InvalidRequestError, before anything is computed, when the answer could not be written."""
        model = self.pod.model
        if model is not self._model:
            outputs = [] if model is None else model.describe()["outputs"]
            self._in_binary_only = {
                o["name"]: o["datatype"] for o in outputs if o["datatype"] in tensors.IN_BINARY_ONLY
            }
            self._model = model
        given = question.given
        for name, datatype in self._in_binary_only.items():
            wanted = given.outputs is None or name in given.outputs
            if wanted and name not in given.classes and not question.chosen.get(name, question.in_binary):
                raise InvalidRequestError(
                    f"output {name!r}: {tensors.no_json(datatype)} (parameters binary_data: true)"
                )

    def unknown(self, path: str) -> RequestError:
        """Why a path of inference is not served here."""
        model, revision = self.pod.config.model, self.pod.config.revision
        return UnknownModelError(
            f"{path[:200]} is not served here: this pod serves model {model!r}, version {revision!r}"
        )

    def live(self) -> tuple[int, bytes, Headers]:
        """Status, body and headers of the liveness of the protocol: the kubelet asks the admin port."""
        return 200, b'{"live":true}', []

    def ready(self, *, to_router: bool) -> tuple[int, bytes, Headers]:
        """Ready or not; to a router a draining pod says that it still serves, for want of a better one."""
        if to_router and self.pod.serves_in_need:
            return 200, orjson.dumps({"ready": False, "draining": True}), [(b"x-envoy-degraded", b"true")]
        if self.pod.ready:
            return 200, b'{"ready":true}', []
        return 503, orjson.dumps({"ready": False, "error": self.pod.describe()}), []

    def refused_method(self, method: str, path: str, allowed: str) -> tuple[int, bytes, Headers]:
        """405, and what to use."""
        message = f"{method} {path[:200]}: use {allowed}"
        body = orjson.dumps(not_served(message)) if path in GENERATE else oip.error_body(message)
        return 405, body, [(b"allow", allowed.encode())]
