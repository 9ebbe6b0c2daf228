"""What the next step runs: a state machine without clock, thread or tensor. Time is passed in.

The engine calls `add` when a request arrives, `plan` before a step, `advance` and `finish` with what came of it. A step
holds rows of many sequences (iteration-level scheduling: Orca, OSDI 2022), in blocks that are taken as they are needed
(PagedAttention, SOSP 2023). The rule, in order:

1. Every answer that goes on gets one row. What `step_tokens` leaves goes to prompts, in chunks: those that run, and
   those that begin; `shares` says how much each gets. No more sequences run than seven eighths of `step_tokens`, so
   that something is left for prompts.
2. Who begins is the first in line. It must fit with all its tokens, beside what prompts that run will still need and
   some headroom for each running sequence to grow by, which becomes larger when that was not enough. Where it does not
   fit, at most OVERTAKERS smaller ones go before it: so a large one does not hold up a pool that is half empty, and
   does not wait for ever either.
3. A prompt that begins like one that runs waits for that one's blocks instead of computing them a second time. So do
   the other answers to one prompt: they share its full blocks, and get a copy of the last one.
4. Blocks are given by standing: by priority, then by place in line. Where they run out, the last gives up its own: it
   goes back to its place in line, and what it had can be found until somebody needs the room. The last one itself only
   waits.
5. Answers may be speculated on with the tokens that are left, and with blocks that nobody else needs.
6. No step wants more rows of logits than LOGITS, or one for each sequence: they are long. That bounds speculation, and
   the chunks of prompts whose own logarithms of probability are asked for.
7. Who has no slot or no room displaces those of strictly lower priority that run, the last first, if that lets it
   begin in this very step. Whoever gave way to a preferred one stands with the highest from then on.

Hence the bounds. The first by standing is never preempted, and gets a row of each step at least. Whoever is preferred
by priority goes before those in line only that arrived less than the levels' difference times LEVEL_SECONDS earlier,
and takes from those that run only what they have not given up once already. Who gave way has the place of its arrival,
so that all but finitely many stand behind it; the first in line is overtaken by OVERTAKERS at most. So everyone who
stays comes to an end.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence as Many

from headway_runtime.batching.tickets import Priority
from headway_runtime.generation import admission, holdings
from headway_runtime.generation.admission import OVERTAKERS, Beginners, Contender, Headroom
from headway_runtime.generation.blocks import BlockPool
from headway_runtime.generation.line import Refusal, WaitingLine
from headway_runtime.generation.sequence import Request, Sequence, State, blocks_for
from headway_runtime.generation.settings import Settings
from headway_runtime.generation.shares import shares
from headway_runtime.generation.speculation import grant, learn
from headway_runtime.generation.step import Step, Work
from headway_runtime.generation.values import FinishReason, Tokens
from headway_runtime.prepare.decoder import BLOCK_TOKENS

ROUNDS = 3  # in which all that wait may displace others
LOGITS = 64  # rows: `opened` sets memory aside for as many
_NEVER = float("inf")


class Scheduler:
    """Not thread-safe: the engine holds one lock around every call. `blocks`: of the cache, block 0 among them."""

    def __init__(self, blocks: int, settings: Settings) -> None:
        self.pool = BlockPool(blocks)
        self.settings = settings
        self.line = WaitingLine()
        self.running: list[Sequence] = []  # by standing, the first one first
        self.requests: dict[int, Request] = {}  # unfinished ones
        self._numbers = 0
        self._earliest = _NEVER  # never later than the first request is given up
        self._preempted = 0  # in this plan
        self._headroom = Headroom()

    @property
    def longest(self) -> int:
        """Tokens that a sequence may have."""
        return min(self.settings.max_length, self.pool.total * BLOCK_TOKENS)

    def add(self, request: Request) -> Refusal | None:
        """Put a request in line, or say which bound it would break. Its prompt must be shorter than `longest`."""
        refused = self.line.refuses(request, self.settings)
        if refused is not None:
            return refused
        for index in range(request.generate.n):
            self._numbers += 1
            sequence = Sequence(self._numbers, request, index, max_length=self.longest)
            request.sequences.append(sequence)
            self.line.add(sequence)
        self.requests[request.id] = request
        self._earliest = min(self._earliest, request.give_up)
        return None

    def before(self, priority: Priority) -> int:
        """Answers that one of this priority may have to wait for: it goes before the others, or displaces them."""
        return self.line.at_least(priority) + sum([sequence.level >= priority for sequence in self.running])

    @property
    def earliest(self) -> float:
        """Until when no request's time is over."""
        return self._earliest

    def expire(self, now: float, *, between_steps: bool = True) -> list[Request]:
        """Take out every request whose time is over; while a step runs, only those that it cannot hold."""
        if now < self._earliest:
            return []
        late = [request for request in self.requests.values() if request.give_up <= now]
        late = [request for request in late if between_steps or not request.running]
        for request in late:
            self.drop(request)
        self._earliest = min((request.give_up for request in self.requests.values()), default=_NEVER)
        return late

    def drop(self, request: Request) -> None:
        """Take a request out, whatever it is doing. Never while a step runs that holds it."""
        for sequence in request.sequences:
            self._leave(sequence)
        self.requests.pop(request.id, None)
        request.ended = True

    def advance(self, work: Work, tokens: Tokens = (), accepted: int = 0) -> None:
        """A step ran: `tokens` go on with the answer; the first `accepted` were drafts, and have run already."""
        sequence = work.sequence
        sequence.tokens.extend(tokens)
        sequence.computed = min(work.start + work.count + accepted, len(sequence.tokens))
        holdings.seal(self.pool, sequence)
        if self.settings.drafts and work.samples:
            learn(sequence, len(work.drafts), accepted)

    def follow(self, sequence: Sequence, tokens: Tokens) -> None:
        """The first token of a further answer to a prompt: it comes of the run of the prompt, and has yet to run."""
        sequence.tokens.extend(tokens)

    def finish(self, sequence: Sequence, reason: FinishReason) -> None:
        """This answer is complete."""
        sequence.finish = reason
        self._leave(sequence)

    def plan(self) -> Step:
        """The next step; without works there is nothing to do."""
        self._preempted = 0
        beginners, given = self._chosen()
        for sequence in [each for gone in beginners.displaced.values() for each in gone]:
            self._preempt(sequence, gives_way=True)
        displaced, self._preempted = self._preempted, 0
        works = self._go_on(given)
        begun: list[Request] = []
        copies: list[tuple[int, int]] = []
        if not self._preempted:
            works += self._begin(beginners, given, begun, copies)
        self._headroom.learn(self._preempted)
        self._speculate(works)
        return Step(tuple(works), tuple(copies), tuple(begun), self._preempted + displaced)

    def _chosen(self) -> tuple[Beginners, dict[Sequence, int]]:
        """Who begins, and tokens for all prompts. Nobody is displaced for one that gets none.

        Others may get in instead of it, so they are looked at again; after some rounds only those displace that did so
        in the one before: each round looks at the whole line.
        """
        early: set[Sequence] = set()
        displacing: set[Sequence] | None = None
        rounds = 0
        while True:
            beginners = Beginners()
            if len(self.line) and self._left(self.running):
                beginners = admission.beginners(
                    self.pool,
                    self.line,
                    self.running,
                    self.settings,
                    headroom=self._headroom.blocks,
                    without=early,
                    displacing=displacing,
                )
            staying = self.running
            if beginners.displaced:
                gone = {each for those in beginners.displaced.values() for each in those}
                staying = [each for each in staying if each not in gone]
            given = self._given(staying, beginners.chosen)
            idle = {sequence for sequence in beginners.displaced if not given.get(sequence)}
            if not idle:
                return beginners, given
            early |= idle
            rounds += 1
            if rounds >= ROUNDS:
                displacing = beginners.displaced.keys() - idle

    def _left(self, running: Many[Sequence]) -> int:
        """Tokens of a step for prompts."""
        prompts = sum([sequence.pending > 1 for sequence in running])
        return max(self.settings.step_tokens - (len(running) - prompts), min(1, prompts))

    def _given(self, running: Many[Sequence], beginners: list[Contender]) -> dict[Sequence, int]:
        """Tokens of prompts in this step. Who waits for another's blocks gets none; who wants the logits of all tokens
        shares so many rows with others of that kind. The first of those that run gets one at least.
        """
        prompts = [admission.contender(sequence, sequence.computed) for sequence in running if sequence.pending > 1]
        left = self._left(running)
        contenders = sorted([*prompts, *beginners], key=lambda this: this.sequence.place)
        given = shares(left, [this.wanted for this in contenders])
        waiting = admission.waiting_for_others(contenders, given)
        if waiting:
            contenders = [this for this in contenders if this.sequence not in waiting]
            given = shares(left, [this.wanted for this in contenders])
        first = next((n for n, this in enumerate(contenders) if running and this.sequence is running[0]), None)
        if first is not None and not given[first]:
            given[given.index(max(given))] -= 1
            given[first] = 1
        tell = [number for number, this in enumerate(contenders) if this.sequence.request.tells_prompt]
        if tell:
            tell.sort(key=lambda number: number != first)
            most = max(LOGITS, self.settings.max_sequences) - (len(running) - len(prompts))
            rows = max(1, most - len(contenders) + len(tell))
            for number in tell:
                given[number] = min(given[number], rows)
                rows -= given[number]
        return dict(zip([this.sequence for this in contenders], given, strict=True))

    def _go_on(self, given: dict[Sequence, int]) -> list[Work]:
        """Works of those that run, and the blocks for them: from the first to the last."""
        works = []
        for sequence in list(self.running):
            wanted = given.get(sequence, 1)
            if sequence.state is not State.RUNNING or not wanted:
                continue  # preempted by one before it, or it is not its turn
            upto = sequence.computed + wanted
            reached = holdings.grow(self.pool, sequence, upto)
            while reached < upto and self.running[-1] is not sequence:
                last = self.running[-1]
                self._preempt(last, gives_way=last.level < sequence.level)
                reached = holdings.grow(self.pool, sequence, upto)
            if reached > sequence.computed:
                works.append(Work(sequence, sequence.computed, reached - sequence.computed))
        return works

    def _begin(
        self,
        beginners: Beginners,
        given: dict[Sequence, int],
        begun: list[Request],
        copies: list[tuple[int, int]],
    ) -> list[Work]:
        """Works of those that begin. `begun` and `copies` are added to: the requests, and blocks to copy for them."""
        works: list[Work] = []
        held = beginners.held
        for sequence in (this.sequence for this in beginners.chosen if given.get(this.sequence)):
            overtakes = held is not None and held.place < sequence.place
            if overtakes and held is not None and held.overtaken >= OVERTAKERS:
                break
            reached = admission.begin(self.pool, sequence, given[sequence], copies)
            if not reached:
                continue
            if overtakes and held is not None:
                held.overtaken += 1
            self.line.remove(sequence)
            insort(self.running, sequence, key=_standing)
            if not sequence.request.begun:
                sequence.request.begun = True
                sequence.request.cached = sequence.computed
                begun.append(sequence.request)
            sequence.state = State.RUNNING
            works.append(Work(sequence, sequence.computed, reached - sequence.computed, begins=True))
        return works

    def _speculate(self, works: list[Work]) -> None:
        """Room for drafts, where tokens are left, and a block more for each who runs."""
        most = self.settings.drafts
        answers = [work for work in works if work.samples and work.sequence.answer] if most else []
        if not answers:
            return
        left = min(
            self.settings.step_tokens - sum([work.count for work in works]),
            max(LOGITS, self.settings.max_sequences) - sum([work.logits for work in works]),
        )
        spare = self.pool.available - holdings.committed(self.running) - len(self.running)
        for number, work in enumerate(answers):
            sequence = work.sequence
            length = len(sequence.tokens)
            room = min(grant(sequence, most), sequence.limit - length - 1, left // (len(answers) - number))
            lacking = max(0, blocks_for(length + room) - len(sequence.blocks))
            if lacking > max(0, spare):
                room = min(room, len(sequence.blocks) * BLOCK_TOKENS - length)
                lacking = 0
            if room > 0:
                holdings.grow(self.pool, sequence, length + room)
                work.room = room
                left -= room
                spare -= lacking

    def _preempt(self, sequence: Sequence, *, gives_way: bool) -> None:
        self._leave(sequence)
        sequence.preempted = True
        sequence.gave_way |= gives_way
        sequence.state = State.WAITING
        self.line.add(sequence)
        self._preempted += 1

    def _leave(self, sequence: Sequence) -> None:
        """Out of wherever it is, without its blocks."""
        if sequence.state is State.RUNNING:
            del self.running[bisect_left(self.running, sequence.standing, key=_standing)]
            holdings.give_up(self.pool, sequence)
        elif sequence.state is State.WAITING:
            self.line.remove(sequence)
        sequence.state = State.OUT


def _standing(sequence: Sequence) -> tuple[int, float, int]:
    return sequence.standing
