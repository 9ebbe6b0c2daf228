"""Who of those that wait may begin in the next step: rules 2, 3 and 7 of the scheduler. Pure."""

from collections.abc import Container
from collections.abc import Sequence as Many
from dataclasses import dataclass, field

from headway_runtime.generation import holdings
from headway_runtime.generation.blocks import BlockPool
from headway_runtime.generation.line import WaitingLine
from headway_runtime.generation.places import Places
from headway_runtime.generation.sequence import Sequence, State
from headway_runtime.generation.settings import Settings
from headway_runtime.prepare.decoder import BLOCK_TOKENS

OVERTAKERS = 4
LOOKED_AT = 16  # of those that wait, in one step
MOST_HEADROOM = 4.0  # blocks
FALL = 1 / 64  # blocks in a step


@dataclass(frozen=True, slots=True)
class Contender:
    """Who could run tokens of a prompt in this step: `wanted` of them, the first of which is in block `block`."""

    sequence: Sequence
    wanted: int
    block: int


def contender(sequence: Sequence, computed: int) -> Contender:
    """A prompt of which so much is computed."""
    return Contender(sequence, len(sequence.tokens) - computed, computed // BLOCK_TOKENS)


class Headroom:
    """`blocks` that each running sequence should have to grow by before one more begins.

    How long answers become nobody knows. Too little room, and the last ones are preempted, and run again what they had;
    too much, and the pool stands half empty. So it grows by a block when somebody was preempted, and falls slowly while
    nobody is (as SGLang's ratio of new tokens does). Simulated with requests for several times the pool: a quarter to
    two fifths fewer preemptions than with one block always, in 2 to 6 % more steps, which are smaller.
    """

    def __init__(self) -> None:
        self._blocks = 1.0

    @property
    def blocks(self) -> int:
        """For each sequence; one more for who was preempted before."""
        return int(self._blocks)

    def learn(self, preempted: int) -> None:
        """A step was planned, for which so many gave up their blocks."""
        if preempted:
            self._blocks = min(MOST_HEADROOM, self._blocks + 1)
        else:
            self._blocks = max(1.0, self._blocks - FALL)


@dataclass(frozen=True, slots=True)
class Beginners:
    """`chosen` may begin, the first in line first. `held`: the first for which there is no room, if it may be
    overtaken. `displaced`: by whom of the chosen, who must give up what they have first.
    """

    chosen: list[Contender] = field(default_factory=list)
    held: Sequence | None = None
    displaced: dict[Sequence, list[Sequence]] = field(default_factory=dict)


def beginners(
    pool: BlockPool,
    line: WaitingLine,
    running: Many[Sequence],
    settings: Settings,
    *,
    headroom: int,
    without: Container[Sequence] = (),
    displacing: Container[Sequence] | None = None,
) -> Beginners:
    """Who may begin, `without` those for whom it is too early. `running`: by standing, the first one first.
    `displacing`: who may displace others; None: all.
    """
    most = min(settings.max_sequences, max(1, settings.step_tokens * 7 // 8))
    if len(running) >= most and line.highest <= running[-1].level:
        return Beginners()  # the usual case under load
    chosen: list[Contender] = []
    displaced: dict[Sequence, list[Sequence]] = {}
    held: Sequence | None = None
    overtakers = 0
    places = Places(pool, running, most, headroom)
    for sequence in line:
        if len(chosen) >= LOOKED_AT or (places.full and line.highest <= places.lowest):
            break
        displaces = displacing is None or sequence in displacing
        if sequence.follows or sequence in without:
            continue
        if places.full and (not displaces or sequence.request.priority <= places.lowest):
            continue
        if held is not None and overtakers >= OVERTAKERS:
            break
        blocks = holdings.found(pool, sequence)
        gone = places.take(sequence, blocks, displaces=displaces)
        if gone is None:
            if held is None and not places.full:
                held, overtakers = sequence, sequence.overtaken
            continue
        overtakers += held is not None
        if gone:
            displaced[sequence] = gone
        chosen.append(contender(sequence, len(blocks) * BLOCK_TOKENS))
    return Beginners(chosen, held, displaced)


def waiting_for_others(contenders: Many[Contender], given: Many[int]) -> set[Sequence]:
    """Those whose next block is one that another one before them runs in this step, or goes on to. Who runs already
    does not wait. `given`: tokens of each in this step.
    """
    promised: set[bytes] = set()
    waiting: set[Sequence] = set()
    for this, tokens in zip(contenders, given, strict=True):
        sequence, last = this.sequence, this.sequence.reusable
        begins = sequence.state is State.WAITING
        if begins and this.block < last and sequence.key(this.block) in promised:
            waiting.add(sequence)
        elif tokens:
            promised.update([sequence.key(block) for block in range(this.block, last)])
    return waiting


def begin(pool: BlockPool, sequence: Sequence, wanted: int, copies: list[tuple[int, int]]) -> int:
    """Give it what is found, and blocks for its first tokens; returns before which token they end. It has none if that
    is where it begins: others have taken the blocks by now.
    """
    holdings.reuse(pool, sequence)
    _fork(pool, sequence, copies)
    reached = holdings.grow(pool, sequence, sequence.computed + min(wanted, sequence.pending))
    if reached <= sequence.computed:
        holdings.give_up(pool, sequence)
        return 0
    return reached


def _fork(pool: BlockPool, sequence: Sequence, copies: list[tuple[int, int]]) -> None:
    """A further answer to a prompt gets a copy of the prompt's last, partly filled block, if it is there still.

    What the copy holds beyond the prompt is overwritten before it is seen.
    """
    leader, full = sequence.request.sequences[0], sequence.prompt // BLOCK_TOKENS
    ends_in_a_block = sequence.prompt % BLOCK_TOKENS and sequence.sealed == full
    ran = leader.state is State.RUNNING and leader.computed >= sequence.prompt
    if sequence.index and ends_in_a_block and ran and pool.available > 1:
        sequence.blocks.append(pool.take())
        copies.append((leader.blocks[full], sequence.blocks[full]))
        sequence.computed = sequence.prompt
