"""A request of more rows than one run may have: its parts wait and run as requests of their own, and their answers are
put together again. All parts succeed, or the request fails once, and what still waits of it leaves the line.

Lives on the event loop, where every part's answer is delivered.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from headway_runtime.batching.engine import Answer, Engine, Work
from headway_runtime.batching.policy import Ticket
from headway_runtime.errors import ProgramFailedError, RequestError
from headway_runtime.serving.values import Request

Slot = Callable[[Answer | RequestError | None], None]


class Whole:
    """Collects the answers of all parts, and calls `slot` once."""

    def __init__(self, engine: Engine, tickets: Sequence[int], slot: Slot) -> None:
        self._engine = engine
        self._tickets = tickets
        self._slot = slot
        self._answers: list[Answer | None] = [None] * len(tickets)
        self._missing = len(tickets)
        self.over = False

    def part(self, number: int, result: Answer | RequestError | None) -> None:
        """The answer of a part; those that come after a failure are ignored."""
        if self.over:
            return
        if not isinstance(result, Answer):
            self._engine.cancel(self._tickets)  # first, so that there is room when the client hears of it
            self._end(result)
            return
        self._answers[number] = result
        self._missing -= 1
        if not self._missing:
            self._end(self._together([answer for answer in self._answers if answer is not None]))

    def _end(self, result: Answer | RequestError | None) -> None:
        self.over = True
        self._answers.clear()
        self._slot(result)

    def _together(self, answers: Sequence[Answer]) -> Answer | RequestError:
        try:
            outputs = self._engine.layout.rejoin([answer.outputs for answer in answers])
        except RuntimeError as error:
            return ProgramFailedError(f"the outputs of the parts of this request do not fit together: {error}")
        return Answer(outputs, max(a.waited for a in answers), max(a.batch_rows for a in answers))


def split(
    request: Request,
    ticket: Ticket,
    ids: Iterator[int],
    *,
    most: int,
    engine: Engine,
    slot: Slot,
    gone: Callable[[], bool],
) -> list[Work]:
    """The parts of a request, of at most `most` rows each. `ticket` is that of the whole, had it one."""
    layout = engine.layout
    parts = layout.split(request.inputs, request.rows, most)
    tickets = [replace(ticket, id=next(ids), rows=rows, bytes=ticket.bytes * rows // request.rows) for rows, _ in parts]
    whole = Whole(engine, [part.id for part in tickets], slot)

    def over() -> bool:
        return whole.over or gone()

    return [
        Work(part, inputs, _with_rows(request, layout.batch, rows), _Part(whole, number), over)
        for number, (part, (rows, inputs)) in enumerate(zip(tickets, parts, strict=True))
    ]


def _with_rows(request: Request, batch: str | None, rows: int) -> dict[str, int]:
    return {**request.sizes, batch: rows} if batch is not None else request.sizes


class _Part:
    """The slot of one part."""

    __slots__ = ("_number", "_whole")

    def __init__(self, whole: Whole, number: int) -> None:
        self._whole, self._number = whole, number

    def __call__(self, result: Answer | RequestError | None) -> None:
        self._whole.part(self._number, result)
