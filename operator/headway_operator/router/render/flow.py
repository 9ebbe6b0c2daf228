"""JSON with references: what repeats is written once. It is YAML's flow style, which Envoy reads.

ConfigMaps hold 1 MiB, and most of a cluster or a route is the same for all of them, or repeats its long names: this
makes a third of the files.
"""

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

WORTH = 14  # characters from which a reference is worth its anchor
_SHARED = (dict, list, str)


def dump(value: Any) -> str:
    """Write JSON types as YAML in flow style, with an anchor at what repeats and aliases after it."""
    texts: dict[int, str] = {}
    _plain(value, texts)
    counts: Counter[str] = Counter()
    _count(value, texts, counts)
    repeated = {text for text, count in counts.items() if count > 1}
    return _write(value, texts, repeated, {})


def _plain(value: Any, texts: dict[int, str]) -> str:
    """The value as JSON; that of every container in it is kept under its identity."""
    if not isinstance(value, dict | list):
        return json.dumps(value)
    if id(value) not in texts:
        if isinstance(value, dict):
            text = f"{{{','.join(f'{json.dumps(key)}: {_plain(inner, texts)}' for key, inner in value.items())}}}"
        else:
            text = f"[{','.join(_plain(inner, texts) for inner in value)}]"
        texts[id(value)] = text
    return texts[id(value)]


def _inner(value: Any) -> Iterable[Any]:
    """What a value holds that may be written once; the keys of a mapping, too."""
    if isinstance(value, dict):
        return [*value, *value.values()]
    return value if isinstance(value, list) else []


def _count(value: Any, texts: dict[int, str], counts: Counter[str]) -> None:
    """Count equal parts. What is inside a repetition does not count: it will not be written again."""
    if not isinstance(value, _SHARED) or len(text := _text(value, texts)) < WORTH:
        return
    counts[text] += 1
    if counts[text] == 1:
        for each in _inner(value):
            _count(each, texts, counts)


def _text(value: Any, texts: dict[int, str]) -> str:
    return json.dumps(value) if isinstance(value, str) else texts[id(value)]


def _write(value: Any, texts: dict[int, str], repeated: set[str], anchors: dict[str, str]) -> str:
    if not isinstance(value, _SHARED):
        return json.dumps(value)
    text = _text(value, texts)
    if text in anchors:
        return f"*{anchors[text]} "  # with a space: a colon, where it is a key, would be part of the name
    mark = ""
    if text in repeated:
        anchors[text] = f"r{len(anchors)}"
        mark = f"&{anchors[text]} "
    if isinstance(value, dict):
        parts = [
            f"{_write(key, texts, repeated, anchors)}: {_write(inner, texts, repeated, anchors)}"
            for key, inner in value.items()
        ]
        return f"{mark}{{{','.join(parts)}}}"
    if isinstance(value, list):
        return f"{mark}[{','.join(_write(inner, texts, repeated, anchors) for inner in value)}]"
    return f"{mark}{text}"
