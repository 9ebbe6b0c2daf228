"""From what a step made to the scheduler's state, the streams, and the record. Under the engine's lock."""

from headway_runtime.errors import RequestError
from headway_runtime.generation.delivery import Begun, Delivery, StepRecord
from headway_runtime.generation.scheduler import Scheduler
from headway_runtime.generation.sequence import Request
from headway_runtime.generation.step import Step
from headway_runtime.generation.stepper import Made, Outcome
from headway_runtime.generation.values import Piece, Usage


class Settling:
    """Of one step that ended at `now`. `ended`: requests that it ended."""

    def __init__(self, scheduler: Scheduler, now: float) -> None:
        self.ended: list[Request] = []
        self._scheduler = scheduler
        self._now = now
        self._pieces: dict[int, list[Piece]] = {}
        self._touched: dict[int, Request] = {}
        self._outcome = Outcome()
        self._first_tokens: list[float] = []
        self._token_seconds: list[float] = []
        self._lengths: list[int] = []
        self._drafted = self._accepted = 0

    def settle(self, outcome: Outcome) -> list[Delivery]:
        """What each stream gets. Requests that were cancelled meanwhile get nothing more."""
        self._outcome = outcome
        failed = {request.id: error for request, error in outcome.failed}
        for made in outcome.made:
            self._advance(made)
        for request, _ in outcome.failed:
            self._touched[request.id] = request
        return [
            self._delivery(request, failed.get(number))
            for number, request in self._touched.items()
            if not request.ended
        ]

    def record(self, step: Step, began: float) -> StepRecord:
        """What the metrics get."""
        scheduler, outcome = self._scheduler, self._outcome
        return StepRecord(
            tokens=sum([work.rows for work in step.works]),
            sequences=len(step.works),
            made=sum([len(made.piece.tokens) for made in outcome.made if made.piece is not None]),
            seconds=self._now - began,
            waiting=len(scheduler.line),
            running=len(scheduler.running),
            blocks_used=scheduler.pool.used,
            preempted=step.preempted,
            cached=sum([request.cached for request in step.begun]),
            prompted=sum([len(request.generate.prompt) for request in step.begun]),
            drafted=self._drafted,
            accepted=self._accepted,
            begun=tuple([Begun(request.priority, began - request.arrived) for request in step.begun]),
            first_tokens=tuple(self._first_tokens),
            token_seconds=tuple(self._token_seconds),
            lengths=tuple(self._lengths),
            retried=outcome.retried,
            non_finite=outcome.non_finite,
        )

    def _advance(self, made: Made) -> None:
        sequence, work, piece = made.answer.sequence, made.work, made.piece
        request = sequence.request
        tokens = () if piece is None else piece.tokens
        if work is None:
            self._scheduler.follow(sequence, tokens)
        else:
            self._scheduler.advance(work, tokens, made.accepted)
            self._drafted += len(work.drafts)
            self._accepted += made.accepted
            request.drafted += len(work.drafts)
            request.accepted += made.accepted
        if piece is None:
            return
        if tokens and not made.answer.first_at:
            made.answer.first_at = self._now
            if request.first_token is None:
                request.first_token = self._now
                self._first_tokens.append(self._now - request.arrived)
        if tokens or piece.finish is not None:
            self._touched[request.id] = request
            self._pieces.setdefault(request.id, []).append(piece)
        if piece.finish is not None:
            self._lengths.append(len(sequence.tokens))
            if sequence.answer > 1:
                self._token_seconds.append((self._now - made.answer.first_at) / (sequence.answer - 1))
            self._scheduler.finish(sequence, piece.finish)

    def _delivery(self, request: Request, error: RequestError | None) -> Delivery:
        pieces = tuple(self._pieces.get(request.id, ()))
        if error is None and request.unfinished:
            return Delivery(request.stream, pieces)
        self._scheduler.drop(request)
        self.ended.append(request)
        return Delivery(request.stream, pieces, ended=True, outcome=error or _usage(request))


def _usage(request: Request) -> Usage:
    return Usage(
        prompt=len(request.generate.prompt),
        completion=sum(sequence.answer for sequence in request.sequences),
        cached=request.cached,
        drafted=request.drafted,
        accepted=request.accepted,
        prompt_logprobs=tuple(request.prompt_logprobs),
    )
