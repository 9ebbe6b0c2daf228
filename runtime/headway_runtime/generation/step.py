"""What the scheduler tells the engine to run. Pure."""

from dataclasses import dataclass

from headway_runtime.generation.sequence import Request, Sequence
from headway_runtime.generation.values import Tokens


@dataclass(slots=True, eq=False)
class Work:
    """The part of one sequence in a step: its tokens from `start` on, `count` of them, then `drafts`.

    `begins`: it has its blocks since now. `room`: how many drafts may be proposed, for which there are blocks; who
    proposes puts them into `drafts`. Each draft is one more row, and its keys and values go where those of the token
    belong that it stands for: what is refused is overwritten by the next step, before anything sees it.
    """

    sequence: Sequence
    start: int
    count: int
    begins: bool = False
    room: int = 0
    drafts: Tokens = ()

    @property
    def rows(self) -> int:
        """Rows of the run."""
        return self.count + len(self.drafts)

    @property
    def tells_prompt(self) -> bool:
        """Whether its rows of a prompt are wanted for the logarithms of probability of the tokens after them."""
        return self.sequence.index == 0 and self.sequence.request.tells_prompt

    @property
    def logits(self) -> int:
        """Of how many of its rows, the last ones, the logits are wanted."""
        return self.rows if self.tells_prompt else (1 + len(self.drafts)) * self.samples

    @property
    def samples(self) -> bool:
        """Whether the answer goes on after this step; else only a part of the prompt was run."""
        return self.start + self.count == len(self.sequence.tokens)


@dataclass(frozen=True, slots=True)
class Step:
    """`copies`: blocks to be copied (from, to) before anything runs. `begun`: requests that run for the first time.
    `preempted`: how many sequences gave up their blocks.
    """

    works: tuple[Work, ...] = ()
    copies: tuple[tuple[int, int], ...] = ()
    begun: tuple[Request, ...] = ()
    preempted: int = 0
