"""Which requests are answered without a framework. Pure: from a method and a request target to a route."""

from enum import Enum, auto
from urllib.parse import unquote

import httptools


class Route(Enum):
    """What a hot request asks for."""

    INFER = auto()
    GENERATE = auto()  # text, as OpenAI's clients ask for it
    READY = auto()
    LIVE = auto()
    UNKNOWN_MODEL = auto()  # inference, with a model or a version that this pod does not serve
    NOT_POST = auto()  # inference or text, with a method that it does not have
    NOT_GET = auto()  # health, likewise


GENERATE = frozenset({"/v1/completions", "/v1/chat/completions"})


class Routes:
    """The hot routes of one model and revision."""

    def __init__(self, model: str, revision: str) -> None:
        bases = (f"/v2/models/{model}", f"/v2/models/{model}/versions/{revision}")
        self._infer = frozenset(f"{base}/infer" for base in bases)
        self._health = {"/v2/health/live": Route.LIVE}
        self._health |= dict.fromkeys(("/v2/health/ready", *(f"{base}/ready" for base in bases)), Route.READY)
        self._spelled_alike = frozenset(path.encode() for path in self._infer)

    def find(self, method: bytes, target: bytes) -> Route | None:
        """The route of a request; None when it is not hot. Raises httptools.HttpParserInvalidURLError."""
        if target in self._spelled_alike and method == b"POST":
            return Route.INFER
        path = path_of(target)
        if path in self._infer or (method == b"POST" and path.endswith("/infer")):
            if method != b"POST":
                return Route.NOT_POST
            return Route.INFER if path in self._infer else Route.UNKNOWN_MODEL
        if path in GENERATE:
            return Route.GENERATE if method == b"POST" else Route.NOT_POST
        found = self._health.get(path)
        return found if found is None or method in (b"GET", b"HEAD") else Route.NOT_GET


def path_of(target: bytes) -> str:
    """The path of a request target, decoded: what ASGI calls `path`."""
    path = httptools.parse_url(target).path.decode("ascii")
    return unquote(path) if "%" in path else path
