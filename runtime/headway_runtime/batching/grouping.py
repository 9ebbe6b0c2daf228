"""Which requests run with a given one: by cost when the cost of a run is known, else first come, first served.

Requests of different sizes are padded to the largest, so company is not always welcome. The waiting requests nearest in
size to the given one, smaller and larger, are laid out by size and cut into runs such that all of them together cost
least (dynamic programming over where to cut, as for line breaks: Knuth and Plass, 1981). The run that holds the given
request is the answer; the others are not kept, because more will have arrived by then.

The window is bounded, so a decision costs the same however many wait: at most `PIECES` on each side, of one request or
so many rows that a batch fits. Of requests equal in size the older are nearer. A run's cost is increased a little for
each row in it (`DELAY`), because all of them wait for its end: where batching gains nothing, nothing is batched. Where
more requests wait beyond the window, the run at its edge will be filled up from them, and counts in proportion. Where
products leave out what fills rows up (`program.ragged`), unlike requests cost less together, and more of them share a
run. Along several dimensions size means volume, and only requests are looked at that waste little of a common box
(`WASTE`).
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from heapq import merge
from math import prod

from headway_runtime.batching.tickets import Ticket

Sizes = tuple[int, ...]
Cost = Callable[[int, Sizes], float]
"""Seconds of one run with that many rows, padded to those sizes. Positive, and the same each time it is asked."""

PIECES = 24  # on each side of a request
NOTICEABLE = 0.05  # the share of a row's cost that more company must be able to save, or else it is not waited for
DELAY = 0.001  # a second in which a row waits for its run to end counts like so many seconds of the device
WASTE = 1.5  # the volume of two requests' common box, as a multiple of the larger one's
_REMEMBERED = 512  # different sizes whose costs are kept

_Entry = tuple[float, int, Ticket]  # sorts by place in line, then by number


class Group:
    """Requests that wait and may share a run, by size, each size in the order of the line."""

    __slots__ = ("_by_volume", "count", "entries", "rows")

    def __init__(self) -> None:
        self.entries: dict[Sizes, list[_Entry]] = {}
        self._by_volume: list[tuple[int, Sizes]] = []
        self.rows = 0
        self.count = 0

    def add(self, ticket: Ticket) -> None:
        """Put it in its place, which is the last one unless priorities differ."""
        entry = (ticket.order, ticket.id, ticket)
        entries = self.entries.get(ticket.sizes)
        if entries is None:
            self.entries[ticket.sizes] = [entry]
            insort(self._by_volume, _with_volume(ticket.sizes))
        elif entry > entries[-1]:
            entries.append(entry)
        else:
            insort(entries, entry)
        self.rows += ticket.rows
        self.count += 1

    def remove(self, ticket: Ticket) -> None:
        """Take it out; it must be there."""
        entries = self.entries[ticket.sizes]
        at = 0 if entries[0][2] is ticket else bisect_left(entries, (ticket.order, ticket.id))
        del entries[at]
        if not entries:
            del self.entries[ticket.sizes]
            del self._by_volume[bisect_left(self._by_volume, _with_volume(ticket.sizes))]
        self.rows -= ticket.rows
        self.count -= 1

    def first(self) -> Ticket:
        """The one that is first in line."""
        if len(self.entries) == 1:  # one size, which is the usual case
            return next(iter(self.entries.values()))[0][2]
        return min(entries[0] for entries in self.entries.values())[2]

    def larger(self, anchor: Ticket) -> Iterator[Ticket]:
        """The others of its sizes, then larger ones, each size in the order of the line."""
        at = bisect_left(self._by_volume, _with_volume(anchor.sizes))
        return self._along(range(at, len(self._by_volume)), anchor)

    def smaller(self, anchor: Ticket) -> Iterator[Ticket]:
        """Those of smaller sizes, the nearest first, each size in the order of the line."""
        at = bisect_left(self._by_volume, _with_volume(anchor.sizes))
        return self._along(range(at - 1, -1, -1), anchor)

    def _along(self, places: range, anchor: Ticket) -> Iterator[Ticket]:
        own_volume, own = _with_volume(anchor.sizes)
        for place in places:
            volume, sizes = self._by_volume[place]
            if len(own) == 1 or prod(map(max, sizes, own)) <= WASTE * max(volume, own_volume):
                for _, _, ticket in self.entries[sizes]:
                    if ticket is not anchor:
                        yield ticket


class Curves:
    """Costs as the choice needs them, worked out once. `most` bounds the rows of a run; `left_out` is the share of a
    run's cost that is spared where it only fills rows up (along one dimension).
    """

    def __init__(self, cost: Cost, most: int, *, left_out: float = 0.0) -> None:
        self.left_out = left_out
        self._cost = cost
        self._most = most
        powers = (step << exponent for exponent in range(most.bit_length()) for step in (2, 3))
        self._marks = sorted({1, most, *(rows for rows in powers if rows < most)})
        self._best: dict[Sizes, list[tuple[float, int]]] = {}
        self._curves: dict[Sizes, list[float]] = {}
        self._enough: dict[Sizes, int] = {}

    def each(self, rows: int, sizes: Sizes) -> float:
        """The cost of a row in a run of so many."""
        return self.to(rows, sizes)[rows] / rows

    def to(self, rows: int, sizes: Sizes) -> list[float]:
        """The costs of runs with 0, 1, ... rows, up to `rows` or further."""
        curve = self._curves.get(sizes)
        if curve is None:
            if len(self._curves) >= _REMEMBERED:
                self._curves.clear()
            curve = self._curves[sizes] = [0.0]
        while len(curve) <= rows:
            count = len(curve)
            curve.append(self._cost(count, sizes) * (1 + DELAY * count))
        return curve

    def best(self, rows: int, sizes: Sizes) -> tuple[float, int]:
        """The least cost of a row in runs of at most `rows` rows, and the rows of that run; some numbers are tried."""
        known = self._best.get(sizes)
        if known is None:
            known = self._best[sizes] = self._learn(sizes)
        best = known[bisect_right(self._marks, rows) - 1]
        return best if rows in self._marks else min(best, (self.each(rows, sizes), rows))

    def enough(self, sizes: Sizes) -> int:
        """Rows to which more company would not make a noticeable difference."""
        rows = self._enough.get(sizes)
        if rows is None:
            if len(self._enough) >= _REMEMBERED:
                self._enough.clear()
            least = self.best(self._most, sizes)[0]
            sated = partial(self._nearly, least, sizes)
            rows = self._enough[sizes] = 1 + bisect_left(range(1, self._most), True, key=sated)
        return rows

    def _nearly(self, least: float, sizes: Sizes, rows: int) -> bool:
        return least > (1 - NOTICEABLE) * self.best(rows, sizes)[0]

    def _learn(self, sizes: Sizes) -> list[tuple[float, int]]:
        if len(self._best) >= _REMEMBERED:
            self._best.clear()
        known: list[tuple[float, int]] = []
        for rows in self._marks:
            here = (self._cost(rows, sizes) * (1 + DELAY * rows) / rows, rows)
            known.append(min(here, known[-1]) if known else here)
        return known


def first_come(group: Group, anchor: Ticket, most: int) -> tuple[Ticket, ...]:
    """`anchor`, then those of its sizes in order, then the others in order, as long as each fits into `most` rows."""
    same = group.entries[anchor.sizes]
    if group.rows == group.count and same[0][2] is anchor and (len(same) >= most or len(group.entries) == 1):
        return tuple([entry[2] for entry in same[:most]])  # all of one row, which is the usual case
    chosen, rows = [anchor], anchor.rows
    others = merge(*(entries for sizes, entries in group.entries.items() if sizes != anchor.sizes))
    for entries in (same, others):
        for _, _, ticket in entries:
            if ticket is not anchor:
                rows += ticket.rows
                if rows > most:
                    return tuple(chosen)
                chosen.append(ticket)
    return tuple(chosen)


def by_cost(group: Group, anchor: Ticket, most: int, curves: Curves) -> tuple[Ticket, ...]:
    """`anchor`, which has fewer than `most` rows, and the company that makes the most of the time."""
    if len(group.entries) == 1:
        _, rows = curves.best(min(group.rows, most), anchor.sizes)
        return first_come(group, anchor, max(rows, anchor.rows))
    grain = -(-most // PIECES)  # rows of a piece
    below = _pieces(group.smaller(anchor), most, grain)
    above = _pieces(group.larger(anchor), most, grain)
    pieces = [*below[::-1], [anchor], *above]
    open_ends = (len(below) == PIECES, len(above) == PIECES)
    start, end = _cut(pieces, len(below), most, open_ends, curves)
    return (anchor, *(ticket for piece in pieces[start:end] for ticket in piece if ticket is not anchor))


def _pieces(tickets: Iterator[Ticket], most: int, grain: int) -> list[list[Ticket]]:
    """The first tickets, in pieces of `grain` rows or of one ticket; those too large for company are left out."""
    pieces: list[list[Ticket]] = []
    room = 0
    for ticket in tickets:
        if ticket.rows >= most:
            continue
        if ticket.rows > room:
            if len(pieces) == PIECES:
                break
            pieces.append([])
            room = grain
        pieces[-1].append(ticket)
        room -= ticket.rows
    return pieces


def _cut(
    pieces: Sequence[list[Ticket]], anchor: int, most: int, open_ends: tuple[bool, bool], curves: Curves
) -> tuple[int, int]:
    """Cut the pieces, which ascend in size, into runs that together cost least; the run with piece number `anchor`, as
    start and end. At an open end more is waiting. Of equally cheap cuts, the one with the shorter last run.
    """
    rows = [sum(ticket.rows for ticket in piece) for piece in pieces]
    ceilings = [_ceiling(piece) for piece in pieces]
    cells = [sum(ticket.rows * ticket.sizes[0] for ticket in piece) for piece in pieces] if curves.left_out else []
    least, cuts = [0.0], [0]
    for end in range(1, len(pieces) + 1):
        ceiling = ceilings[end - 1]
        curve = curves.to(most, ceiling)
        last = open_ends[1] and end == len(pieces)
        total, real, best, cut = 0, 0, float("inf"), end - 1
        for start in range(end - 1, -1, -1):
            total += rows[start]
            if total > most:
                break
            if ceilings[start] != ceiling and (higher := _max(ceilings[start], ceiling)) != ceiling:
                ceiling = higher
                curve = curves.to(most, ceiling)
            if (last and start > anchor) or (start == 0 and end <= anchor and open_ends[0]):
                cost = total * curves.best(most, ceiling)[0]
            else:
                cost = curve[total]
            if cells:
                real += cells[start]
                cost *= 1 - curves.left_out * (1 - real / (total * ceiling[0]))
            cost += least[start]
            if cost < best:
                best, cut = cost, start
        least.append(best)
        cuts.append(cut)
    end = len(pieces)
    while cuts[end] > anchor:
        end = cuts[end]
    return cuts[end], end


def _ceiling(piece: Sequence[Ticket]) -> Sizes:
    sizes = piece[0].sizes
    for ticket in piece[1:]:
        if ticket.sizes != sizes:
            sizes = _max(sizes, ticket.sizes)
    return sizes


def _max(some: Sizes, others: Sizes) -> Sizes:
    return tuple(map(max, some, others))


def _with_volume(sizes: Sizes) -> tuple[int, Sizes]:
    return prod(sizes), sizes
