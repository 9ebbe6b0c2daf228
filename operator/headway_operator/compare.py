"""Whether a live object already is as desired, and where not. Pure.

Everything that is desired must be there; what others added (defaults, a sidecar's label, an annotation) is theirs and
does not count. What selects pods is a whole: with one label more a Service selects nothing. The API server also
rewrites some values (`1000m` becomes `1`): `Settled` remembers what came back for what was asked, so that such an
object is applied once and not in every pass.
"""

import hashlib
import json
from typing import Any

from headway_operator.observed import Object

_KEYS = ("uid", "name", "key", "containerPort", "port", "mountPath")  # what tells the items of a list apart
_ZERO: tuple[Any, ...] = (None, {}, [], "", 0, False)  # what the server may leave out instead of spelling it
_WHOLE = ("selector", "matchLabels", "ingress")  # atomic to the API server, and others' additions change their meaning
_BOOKKEEPING = ("resourceVersion", "generation", "managedFields")


def difference(desired: Any, live: Any, path: str = "") -> str | None:
    """The path of the first thing that is desired and not so; None when everything is."""
    if path.rpartition(".")[2] in _WHOLE:
        return None if desired == live else path
    if isinstance(desired, dict) and isinstance(live, dict):
        for key, value in desired.items():
            if key in live:
                if (found := difference(value, live[key], f"{path}.{key}" if path else key)) is not None:
                    return found
            elif value not in _ZERO:
                return f"{path}.{key}" if path else key
        return None
    if isinstance(desired, list) and isinstance(live, list):
        return _list_difference(desired, live, path)
    return None if desired == live and isinstance(desired, bool) == isinstance(live, bool) else path


def _list_difference(desired: list[Any], live: list[Any], path: str) -> str | None:
    if len(desired) == len(live):
        pairs = list(zip(desired, live, strict=True))
        found = next((d for i, (a, b) in enumerate(pairs) if (d := difference(a, b, f"{path}[{i}]")) is not None), None)
        if found is None:
            return None
    key = next((k for k in _KEYS if all(isinstance(i, dict) and k in i for i in (*desired, *live))), None)
    if key is None:
        return path
    present = {item[key]: item for item in live}
    for item in desired:
        where = f"{path}[{key}={item[key]}]"
        if item[key] not in present:
            return where
        if (found := difference(item, present[item[key]], where)) is not None:
            return found
    return None


class Settled:
    """What came back otherwise than it was asked for, by UID: asking again would change nothing."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, str]] = {}  # UID -> (digest of what was asked, digest of what came back)

    def is_known(self, uid: str, desired: Any, live: Any) -> bool:
        """Whether `live` is what came back the last time that `desired` was asked for."""
        known = self._known.get(uid)
        return known is not None and known == (_digest(desired), _digest(live))

    def came_back(self, uid: str, desired: Any, live: Any) -> None:
        """`desired` was asked for and `live` was the answer."""
        self._known[uid] = (_digest(desired), _digest(live))

    def difference(self, desired: Object, live: Object) -> str | None:
        """Where an object is not as desired; None also when asking again would change nothing."""
        where = difference(desired, live)
        known = where is not None and self.is_known(live["metadata"]["uid"], desired, owned_state(live))
        return None if known else where

    def answered(self, desired: Object, answer: Object) -> None:
        """The API server's own answer to `desired`; what was seen of the object since may be another hand's edit. One
        that is as desired takes back what came before, for by then that would be an edit, too.
        """
        uid = answer["metadata"]["uid"]
        if difference(desired, answer) is None:
            self.forget(uid)
        else:
            self.came_back(uid, desired, owned_state(answer))

    def forget(self, uid: str) -> None:
        """It is gone, or it came back as it was asked for."""
        self._known.pop(uid, None)


def owned_state(live: Object) -> Object:
    """The part of an object in which an edit by hand shows: neither its status nor the server's bookkeeping."""
    metadata = {key: value for key, value in live["metadata"].items() if key not in _BOOKKEEPING}
    return {**{key: value for key, value in live.items() if key != "status"}, "metadata": metadata}


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
