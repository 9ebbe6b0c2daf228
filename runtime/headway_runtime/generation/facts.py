"""What an opened generator is, for who talks to its clients: the words, and how long a sequence may be."""

from dataclasses import dataclass

from tokenizers import Tokenizer

from headway_runtime.generation.constraints import Constraints
from headway_runtime.prepare.decoder import DecoderFacts


@dataclass(frozen=True, slots=True)
class Facts:
    """`decoder` is what the artifact's record says: chat template, end tokens, defaults of sampling. `max_length`:
    tokens of a sequence, prompt and answer together, as this pod has room for them; `vocabulary`: logits of a token.
    `constraints` compiles what an answer must match: it may take a second, so it is called in a thread.
    """

    decoder: DecoderFacts
    tokenizer: Tokenizer
    vocabulary: int
    max_length: int
    constraints: Constraints | None = None
