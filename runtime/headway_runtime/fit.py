"""Does the program keep its word, and does it fit? Asked before it runs, and before its weights go to a device.

The shape gate measures the largest buckets and the smallest; what it finds is held against the memory that this
container may use. Only what can be proven not to fit is refused: see ``program/shape_gate/``.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from headway_runtime.buckets import FIELD as BUCKETS_FIELD
from headway_runtime.buckets import Buckets
from headway_runtime.errors import FatalError
from headway_runtime.logs import log
from headway_runtime.memory import Room
from headway_runtime.program import Program
from headway_runtime.program.shape_gate import Need, ShapeGate, worth_measuring
from headway_runtime.warmup import describe

UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
MEMORY_FIELD = "spec.template.resources.limits.memory"


def check_shapes(document: Mapping[str, Any], program: Program, buckets: Buckets, *, room: Room, in_use: int) -> None:
    """Derive all shapes of the largest and smallest buckets. ``in_use``: bytes that the process has besides.

    Raises ProgramError `ShapeMismatch` or `WillNotFit`, FatalError `WillNotFit`.
    """
    gate = ShapeGate(document, program)
    needs = [gate.measure(sizes) for sizes in worth_measuring(buckets.combinations)]
    for operator, arguments in gate.unknown.items():
        log("shapes_depend_on_data", operator=operator, arguments=arguments)
    most = max(needs, key=lambda need: need.peak)
    log("shapes_derived", weights=gate.weights, peak=most.peak, bucket=most.sizes, room=room.bytes, in_use=in_use)
    if (refusal := will_not_fit(gate.weights, needs, room=room, in_use=in_use)) is not None:
        raise refusal


def will_not_fit(weights: int, needs: Sequence[Need], *, room: Room, in_use: int) -> FatalError | None:
    """None when nothing proves that the program cannot run in ``room``; else the refusal, with its numbers."""
    most = max(needs, key=lambda need: need.peak)
    total = weights + most.peak + in_use
    if total <= room.bytes:
        return None
    fewest = weights + min(need.peak for need in needs) + in_use
    field = BUCKETS_FIELD if fewest <= room.bytes else MEMORY_FIELD
    advice = f"raise {MEMORY_FIELD}"
    if fewest <= room.bytes:
        advice += f", or list smaller sizes in {BUCKETS_FIELD}"
    largest = most.largest
    message = (
        f"{field}: bucket {describe(most.sizes)} needs at least {readable(total)}: weights {readable(weights)}, "
        f"live tensors {readable(most.peak)}, the process itself {readable(in_use)}; {room.whose} is "
        f"{readable(room.bytes)}. The largest tensor is {readable(largest.bytes)}: {list(largest.shape)} of "
        f"{largest.what}; {advice}"
    )
    return FatalError("WillNotFit", message, condition="Accepted", field=field)


def readable(size: int) -> str:
    """``1.5 GiB``."""
    if size < 1024:
        return f"{size} bytes"
    power = min((size.bit_length() - 1) // 10, len(UNITS))
    return f"{size / 1024**power:.1f} {UNITS[power - 1]}"
