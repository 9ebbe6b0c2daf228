"""Does the decoder continue the artifact's golden prompts as the exporting machine did? Asked before a pod is ready, of
the very engine that will serve: a few prompts alone, then all together, so that batching, chunking and the kernels are
tried, too (and warm).

Weights as exported: the tokens must be the same. Greedy choice is a comparison, and two sums that differ in their last
bit may decide it differently; so where the exporter's own margin (the lead of its token over the second best) was less
than `TIE`, another token counts as a tie, and the rest of that prompt is not compared.

Weights of lower precision (`spec.precision`) are not the exporter's, and need not say the same. There each golden
token is judged by itself, after the golden ones before it (teacher forcing): in how many places is it still the
likeliest, and by how much did its lead change? Below `LEAST_EQUAL` the pod is refused; so it is where there is nothing
to try it with.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from headway_api.podconfig import ColdVerification, ParityReport
from headway_api.types import OnMismatch, Precision

from headway_runtime.errors import FatalError, RequestError
from headway_runtime.generation.values import Generate, Piece, Sampling, Stream, TokenLogprob, Usage
from headway_runtime.logs import log
from headway_runtime.precision import LEAST_EQUAL, cannot, not_borne, refused
from headway_runtime.prepare.decoder import GoldenPrompt

TIE = 1e-3
"""Of a logit. Sums of some thousand float32 products differ by about 1e-4 between machines."""

ALONE = 2
"""Prompts that are continued alone: a step of one sequence takes half as long as one of all."""

ADVICE = (
    "the decoder does not compute here what it was exported to compute; if the golden answers are of other hardware, "
    "set spec.verification.onMismatch: Warn"
)
NOTHING_TO_TRY = (
    "the artifact carries no golden prompt of at most {} tokens to try it with: export it with headway export, raise "
    "spec.generation.maxLength, or write precision: Exported"
)
_NEVER = float("inf")
_GREEDY = Sampling(temperature=0.0)

Answer = Callable[[Sequence[tuple[Generate, Stream]]], None]
"""Runs the engine until all of these are ended."""


@dataclass(slots=True)
class _Heard:
    """What the stream of one golden prompt got."""

    tokens: list[int]
    outcome: Usage | RequestError | None = None

    @classmethod
    def of(cls, generate: Generate) -> tuple["_Heard", tuple[Generate, Stream]]:
        """A listener, and what to submit."""
        heard = cls([])
        return heard, (generate, Stream(_NEVER, _NEVER, heard.pieces, heard.ended))

    def pieces(self, pieces: tuple[Piece, ...]) -> None:
        for piece in pieces:
            self.tokens += piece.tokens

    def ended(self, outcome: Usage | RequestError | None) -> None:
        self.outcome = outcome


def verify(
    answer: Answer, golden: Sequence[GoldenPrompt], precision: Precision, *, max_length: int, asked: ColdVerification
) -> ParityReport | None:
    """None without golden prompts of at most `max_length` tokens, and where every one of them begins with a tie: then
    nothing was compared, and nothing agrees. (A lower precision that cannot be tried is refused.)

    Raises FatalError: `ParityFailed`, unless `spec.verification.onMismatch` is Warn; `PrecisionRefused`.
    """
    fitting = [prompt for prompt in golden if len(prompt.prompt) + len(prompt.tokens) <= max_length]
    if len(fitting) < len(golden):
        log("golden_prompts_skipped", level="warning", count=len(golden) - len(fitting), max_length=max_length)
    if not fitting:
        if precision is not Precision.EXPORTED:
            raise refused(cannot(precision, NOTHING_TO_TRY.format(max_length)))
        return None
    if precision is Precision.EXPORTED:
        return _equal(answer, fitting, asked)
    return _close(answer, fitting, precision)


def _equal(answer: Answer, golden: Sequence[GoldenPrompt], asked: ColdVerification) -> ParityReport | None:
    differ: list[str] = []
    compared = ties = 0
    rounds = [[prompt] for prompt in golden[:ALONE]]
    if len(golden) > 1:
        rounds.append(list(golden))
    for batch in rounds:
        how = "alone" if len(batch) == 1 else f"with {len(batch) - 1} others"
        heard = _run(answer, [_greedily(prompt) for prompt in batch])
        for prompt, found in zip(batch, heard, strict=True):
            equal, why = _compared(prompt, found)
            compared += equal
            ties += not why and equal < len(prompt.tokens)
            if why:
                differ.append(f"golden prompt {golden.index(prompt)}, {how}: {why}")
    message = "; ".join(differ[:3]) + (f"; and {len(differ) - 3} more" if len(differ) > 3 else "")
    if differ and asked.on_mismatch is OnMismatch.BLOCK:
        raise FatalError("ParityFailed", f"{message}; {ADVICE}", condition="Ready", field="spec.verification")
    for text in differ:
        log("golden_prompt_differs", level="warning", what=text)
    log("parity_checked", prompts=len(golden), differ=len(differ), ties=ties, equal=compared)
    if not compared and not differ:
        log("golden_prompts_say_nothing", level="warning", reason="every one begins with a tie", ties=ties)
        return None
    return ParityReport(samples=len(golden), agrees=not differ, message=message)


def _compared(prompt: GoldenPrompt, heard: _Heard) -> tuple[int, str]:
    """How many tokens are equal, and where they part: empty when all are equal, or up to a tie."""
    if isinstance(heard.outcome, RequestError):
        return 0, str(heard.outcome)
    pairs = enumerate(zip(heard.tokens, prompt.tokens, strict=False))
    at = next((at for at, (here, there) in pairs if here != there), None)
    if at is None:
        if len(heard.tokens) >= len(prompt.tokens):
            return len(prompt.tokens), ""
        return len(heard.tokens), f"it ended after {len(heard.tokens)} of {len(prompt.tokens)} tokens"
    margin = prompt.margins[at] if at < len(prompt.margins) else None
    if margin is not None and margin < TIE:
        return at, ""
    lead = "" if margin is None else f", where its lead was {margin:.3g}"
    return at, f"token {at} is {heard.tokens[at]}, golden is {prompt.tokens[at]}{lead}"


def _close(answer: Answer, golden: Sequence[GoldenPrompt], precision: Precision) -> ParityReport:
    requests = [
        replace(_greedily(each), prompt=each.prompt + each.tokens, max_tokens=1, prompt_logprobs=2) for each in golden
    ]
    judged = [*_judged(answer, requests, golden)]
    equal = sum(lead > 0 for lead, _ in judged)
    share = equal / len(judged)
    largest = max((abs(lead - margin) for lead, margin in judged if margin is not None), default=0.0)
    least = LEAST_EQUAL[precision]
    words = (
        f"{precision.value}: {equal} of {len(judged)} golden tokens are the likeliest here, too ({share:.1%}; at least "
        f"{least:.0%} are asked for); the largest change of a lead is {largest:.3g}"
    )
    log("precision_checked", precision=precision.value, tokens=len(judged), equal=equal, largest_change=largest)
    if share < least:
        raise not_borne(words, "decoder")
    return ParityReport(samples=len(golden), agrees=True, largest_difference=largest, message=words)


def _judged(
    answer: Answer, requests: Sequence[Generate], golden: Sequence[GoldenPrompt]
) -> list[tuple[float, float | None]]:
    """The lead of each golden token here, and there if it was recorded."""
    found: list[tuple[float, float | None]] = []
    for prompt, heard in zip(golden, _run(answer, requests), strict=True):
        if not isinstance(heard.outcome, Usage):
            raise FatalError("ParityFailed", f"a golden prompt was not answered: {heard.outcome}", condition="Ready")
        told = heard.outcome.prompt_logprobs[len(prompt.prompt) :]
        for at, logprob in enumerate(told):
            margin = prompt.margins[at] if at < len(prompt.margins) else None
            found.append((_lead(logprob), margin))
    return found


def _lead(told: TokenLogprob | None) -> float:
    """By how much a token leads the best other one; negative where that one leads."""
    assert told is not None  # only the first of a prompt has none
    best_other = max((logprob for token, logprob in told.top if token != told.token), default=-_NEVER)
    return told.logprob - best_other


def _greedily(prompt: GoldenPrompt) -> Generate:
    """As many tokens as are known, end tokens or not."""
    return Generate(prompt.prompt, len(prompt.tokens), _GREEDY, skip_special_tokens=False)


def _run(answer: Answer, requests: Sequence[Generate]) -> list[_Heard]:
    pairs = [_Heard.of(generate) for generate in requests]
    answer([submitted for _, submitted in pairs])
    return [heard for heard, _ in pairs]
