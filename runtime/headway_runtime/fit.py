"""Does the program keep its word, and does it fit? Asked before it runs, and before its weights go to a device.

The shape gate measures the largest buckets and the smallest; what it finds is held against the memory that this
container may use. Only what can be proven not to fit is refused: see ``program/shape_gate/``. Where requests beyond the
largest buckets are run (`spec.batching.oversize`), the same measure says how far.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headway_runtime.buckets import FIELD as BUCKETS_FIELD
from headway_runtime.buckets import Buckets
from headway_runtime.errors import FatalError
from headway_runtime.logs import log
from headway_runtime.memory import Room
from headway_runtime.prepare.room import MEMORY_FIELD, readable
from headway_runtime.program import Program, ProgramError
from headway_runtime.program.shape_gate import Need, ShapeGate, worth_measuring
from headway_runtime.warmup import describe

__all__ = ["ceilings", "check_shapes", "readable", "will_not_fit"]

PARTS = 64
MOST = 1 << 30
NEAR = 64


def check_shapes(document: Mapping[str, Any], program: Program, buckets: Buckets, *, room: Room, in_use: int) -> None:
    """Derive all shapes of the largest and smallest buckets. ``in_use``: bytes that the process has besides.

    Raises ProgramError `ShapeMismatch` or `WillNotFit`, FatalError `WillNotFit`.
    """
    gate = ShapeGate(document, program)
    needs = [gate.measure(sizes) for sizes in worth_measuring(buckets.combinations)]
    for operator, arguments in gate.unknown.items():
        log("shapes_depend_on_data", operator=operator, arguments=arguments)
    most = max(needs, key=lambda need: need.peak)
    weights = program.weights_bytes
    log("shapes_derived", weights=weights, peak=most.peak, bucket=most.sizes, room=room.bytes, in_use=in_use)
    if (refusal := will_not_fit(weights, needs, room=room, in_use=in_use)) is not None:
        raise refusal


def ceilings(
    document: Mapping[str, Any], program: Program, buckets: Buckets, *, room: Room, in_use: int
) -> dict[str, int | None]:
    """How large each size may be in a run of its own beyond the largest bucket: as far as nothing proves that it does
    not fit, the other sizes at their largest buckets and, along them, a batch as small as the program takes. None: as
    far as the program's range goes.
    """
    gate = ShapeGate(document, program)
    batch = program.batch
    found: dict[str, int | None] = {}
    for name in program.dimensions:
        others = {other: buckets.largest(other) for other in program.dimensions}
        if batch is not None and name != batch:
            others[batch] = max(1, program.dimensions[batch].min)

        def fits(size: int, name: str = name, others: Mapping[str, int] = others) -> bool:
            try:
                need = gate.measure({**others, name: size})
            except ProgramError:
                return False
            return will_not_fit(program.weights_bytes, [need], room=room, in_use=in_use) is None

        found[name] = _ceiling(program, name, others, fits)
    log("ceilings_derived", ceilings=found, room=room.bytes)
    return found


def _ceiling(program: Program, name: str, others: Mapping[str, int], fits: Callable[[int], bool]) -> int | None:
    """The largest size that fits, to one part in `PARTS`; None when the largest of the program's range does."""
    bound = program.dimensions[name].max
    low, high, limit = others[name], 0, bound if bound is not None else MOST
    while low < limit and not high:
        size = min(2 * low, limit)
        allowed = _at_most(program, name, others, size)
        if allowed <= low or not fits(allowed):
            high = size
        elif allowed == _at_most(program, name, others, limit):
            return None
        else:
            low = allowed
    while high - low > max(1, low // PARTS):
        allowed = _at_most(program, name, others, (low + high) // 2)
        if allowed > low and fits(allowed):
            low = allowed
        else:
            high = (low + high) // 2
    return low if high else None


def _at_most(program: Program, name: str, others: Mapping[str, int], size: int) -> int:
    """The next smaller size that the program's guards allow, if one is near; 0 otherwise."""
    near = range(size, max(0, size - NEAR), -1)
    return next((n for n in near if program.check({**others, name: n}) is None), 0)


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
