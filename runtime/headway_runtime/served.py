"""What a pod serves, in the words that the life cycle, the knobs and the reports have for every kind of program."""

from typing import Any, Protocol

from headway_api.podconfig import GenerationReport, Knobs, PaddingReport

from headway_runtime.knobs import Settings


class Served(Protocol):
    """A program that is loaded and warm: `Model`, which answers each request by a row of one run, or `Generator`, which
    answers by many steps.
    """

    @property
    def padding(self) -> tuple[PaddingReport, ...]:
        """What was found of each dimension that may be padded."""

    @property
    def instances(self) -> int:
        """Runs at a time."""

    @property
    def waiting(self) -> int:
        """Rows, or answers, that wait."""

    def describe(self) -> dict[str, Any]:
        """The `inputs` and `outputs` of a metadata answer."""

    def hash(self) -> str:
        """Equal for what clients may ask in the same way."""

    def obey(self, asked: Knobs) -> Settings:
        """Apply these knobs from the next run on; returns what of them it can honour."""

    def room(self) -> GenerationReport | None:
        """Room for sequences; None: it generates no text."""

    def run(self) -> None:
        """The life of its threads: returns after `stop`. Raises what ended one of them."""

    def sweep(self) -> None:
        """Drop what waits in vain. On the event loop."""

    def stop(self) -> None:
        """End its threads after their current runs. On the event loop."""

    def stretch(self, settings: Settings) -> float:
        """How many times longer than the warmed runs one may take, by these knobs."""

    def busy_for(self) -> float:
        """Seconds that the longest of its current runs has taken so far."""
