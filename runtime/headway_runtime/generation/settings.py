"""What rules the engine. Hot values come from the knobs and change by `dataclasses.replace`; the others are fixed when
the decoder is opened. Pure.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """`max_length`: tokens of a sequence, prompt and answer together (fixed). `max_sequences`: that run at a time.

    `step_tokens`: of one step, at least one for each running sequence all the same. `capacity`: answers that may wait;
    `prompt_bytes`: of the prompts of those. `reject_non_finite`: a sequence whose logits hold NaN or infinity is
    answered with an error; else they count as the least likely. `drafts`: tokens that are proposed at a time (fixed; 0:
    no speculation), by the draft program if the engine has one, else by what followed the same words earlier.
    """

    max_length: int
    max_sequences: int = 64
    step_tokens: int = 256
    prefix_cache: bool = True
    capacity: int = 512
    prompt_bytes: int = 256 << 20
    reject_non_finite: bool = False
    drafts: int = 0
