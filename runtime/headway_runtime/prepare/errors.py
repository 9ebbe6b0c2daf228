"""Every way in which preparing an artifact can end badly.

PrepareError            a condition, a reason and a sentence the model's author can act on
├── FetchError          the bytes could not be had, or are not the pinned ones: NotFound, Forbidden, …
├── KeyFileError        a key of the deployment cannot be used: InvalidKeys
├── SignatureError      nobody who is trusted vouches for the bytes: SignatureMissing, SignatureInvalid
└── Refusal             the bytes are here and will not be run: which rule, in which record, at which JSON path
"""

from headway_runtime.prepare.rules import RULES

URI_FIELD = "spec.artifact.uri"
TRUST_FIELD = "spec.artifact.trust"
PUBLIC_KEYS_FIELD = f"{TRUST_FIELD}.publicKeys"
BUILDER_KEYS_FIELD = f"{TRUST_FIELD}.builderKeys"


class PrepareError(Exception):
    """Base of all of them. ``condition`` and ``reason`` are CamelCase names of a status condition, ``field`` a field
    path.
    """

    condition = "ArtifactVerified"

    def __init__(self, reason: str, message: str, *, field: str = URI_FIELD) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.field = field


class FetchError(PrepareError):
    """The artifact could not be fetched, or is not the one that was pinned."""


class KeyFileError(PrepareError):
    """A file that should hold a key does not. The message names the file; nothing of its content is repeated."""

    def __init__(self, message: str, *, field: str) -> None:
        super().__init__(reason="InvalidKeys", message=message, field=field)


class SignatureError(PrepareError):
    """There is no signature, or it does not speak for this file; the message says which."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(reason, message, field=TRUST_FIELD)


class Refusal(PrepareError):  # noqa: N818  # the domain's word: a program is refused, nothing went wrong
    """A rule of the inspector was broken. ``record`` is the archive entry, ``path`` the JSON path inside it.

    The path is filled in from the inside out: each level that a refusal passes through adds its own step, so that
    checking costs nothing while all is well.
    """

    def __init__(self, rule: str, detail: object = "") -> None:
        self.rule = rule
        self.detail = printable(str(detail))
        self.record = ""
        self._steps: list[str | int] = []
        self._path = ""
        super().__init__(RULES[rule].reason, RULES[rule].sentence)

    def inside(self, step: str | int) -> "Refusal":
        """The same refusal, seen from one level further out."""
        self._steps.append(step)
        return self

    def within(self, record: str) -> "Refusal":
        """The same refusal, with the archive entry it concerns (the innermost caller wins)."""
        self.record = self.record or printable(record)
        return self

    @property
    def path(self) -> str:
        """JSON path, for example ``$.graph_module.graph.nodes[3].inputs[0]``; empty when the rule is not about JSON."""
        if not self._steps:
            return self._path
        steps = (f"[{s}]" if isinstance(s, int) else f".{printable(s, 64)}" for s in reversed(self._steps))
        return "$" + "".join(steps)

    def to_dict(self) -> dict[str, str]:
        """For :meth:`restore`, across a process boundary."""
        return {"rule": self.rule, "detail": self.detail, "record": self.record, "path": self.path}

    @classmethod
    def restore(cls, *, rule: str, detail: str, record: str, path: str) -> "Refusal":
        """Inverse of :meth:`to_dict`."""
        refusal = cls(rule, detail).within(record)
        refusal._path = path
        return refusal

    def __str__(self) -> str:
        where = ", ".join(part for part in (f"record {self.record}" if self.record else "", self.path) if part)
        detail = f": {self.detail}" if self.detail else ""
        return f"{self.message}{detail} (rule {self.rule}{', ' + where if where else ''})"


def printable(value: object, limit: int = 200) -> str:
    """Text of a file, safe to log: ASCII, no control characters, bounded."""
    text = str(value)
    clean = text[: limit + 1].encode("ascii", "backslashreplace").decode("ascii")
    clean = "".join(c if c.isprintable() else "?" for c in clean)
    return clean if len(clean) <= limit else clean[:limit] + "…"
