"""One answer as the engine sees it: the scheduler's sequence, the sampler's state, and the text so far."""

from dataclasses import dataclass, field

from headway_runtime.generation.sampling import Chosen, State
from headway_runtime.generation.sequence import Sequence
from headway_runtime.generation.speculation import PromptLookup
from headway_runtime.generation.text import TextStream
from headway_runtime.generation.values import FinishReason, Piece, Tokens


@dataclass(slots=True, eq=False)
class Answer:
    """`first_at`: when its first token was made. `drafted`: tokens that the draft program has the keys of."""

    sequence: Sequence
    state: State
    text: TextStream
    first_at: float = 0.0
    drafted: int = 0
    lookup: PromptLookup = field(default_factory=PromptLookup)

    def piece(self, chosen: Chosen) -> Piece:
        """What these tokens add: all of them, or those up to one that ends the answer."""
        tokens, reason, ends_by_token = self._cut(chosen.tokens)
        text, stopped = self.text.push(tokens[:-1] if ends_by_token else tokens)
        if stopped:
            tokens, reason = tokens[: self.text.taken], FinishReason.STOP
        elif reason is None and self.state.ended:
            reason = FinishReason.STOP
        if reason is not None:
            text += self.text.flush()
        return Piece(self.sequence.index, text, tokens, chosen.logprobs[: len(tokens)], reason)

    def _cut(self, tokens: Tokens) -> tuple[Tokens, FinishReason | None, bool]:
        """The tokens up to the one that ends the answer, why it does, and whether it is an end token: has no text."""
        sequence, generate = self.sequence, self.sequence.request.generate
        left = sequence.limit - len(sequence.tokens)
        for number, token in enumerate(tokens[:left], 1):
            if token in generate.stop_tokens and sequence.answer + number > generate.min_tokens:
                return tokens[:number], FinishReason.STOP, True
        return tokens[:left], FinishReason.LENGTH if len(tokens) >= left else None, False
