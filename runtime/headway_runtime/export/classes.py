"""Whether the labels of a file are as many as the classes that they name.

Which output they belong to is said only where a pod puts them into answers (`--classify`); that is checked with the
steps. Elsewhere they must fit one of the outputs.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from headway_runtime.export.errors import ExportError
from headway_runtime.export.proof import Opened
from headway_runtime.prepare import repack
from headway_runtime.prepare.beside.steps import of_document
from headway_runtime.prepare.wiring import SCORES, chain


def check_labels(pod: Opened) -> None:
    """Raises ExportError where no output of the last program can have as many classes as there are labels."""
    document = _document(pod, pod.name)
    labels: Sequence[str] = document.get("facts", {}).get("labels", ())
    if not labels:
        return
    outputs = _document(pod, chain(pod.name, of_document(document))[-1])["outputs"]
    counts = [_classes(output) for output in outputs]
    if None in counts or len(labels) in counts or (len(labels) == 2 and 1 in counts):  # one score may tell two apart
        return
    found = ", ".join(f"{output['name']} has {count}" for output, count in zip(outputs, counts, strict=True))
    empty = next((number for number, label in enumerate(labels, 1) if not label.strip()), None)
    hint = "" if empty is None else f" (line {empty} is empty)"
    there = "there is 1 label" if len(labels) == 1 else f"there are {len(labels)} labels"
    raise ExportError(
        f"{there}{hint}, and no output has as many classes: {found}; write one label for each class, in the order of "
        "the scores"
    )


def _document(pod: Opened, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(repack.program_file(pod.directory, name).read_bytes())
    return found


def _classes(output: Mapping[str, Any]) -> int | None:
    """Of scores, along the last axis, 1 where there is none but the rows'; None: it may have any number, as whole
    numbers, which may be classes themselves, do, and what has several axes of fixed size: of a picture's map, or of
    boxes with their scores, nobody says which one is that of the classes, and what else lies along it.
    """
    shape = output["shape"]
    several = sum(isinstance(size, int) for size in shape[1:]) > 1
    if output["dtype"] not in SCORES or several:
        return None
    if not shape or isinstance(shape[-1], int):
        return shape[-1] if shape else 1
    return 1 if len(shape) == 1 else None
