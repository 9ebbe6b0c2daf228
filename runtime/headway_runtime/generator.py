"""A loaded decoder that is ready to generate text, with what surrounds it."""

import hashlib
from dataclasses import dataclass, replace
from typing import Any

from headway_api.podconfig import GenerationReport, Knobs, PaddingReport
from headway_api.types import NonFinite

from headway_runtime import generation_knobs, knobs
from headway_runtime.generation.engine import Engine
from headway_runtime.generation.facts import Facts
from headway_runtime.generation.opened import Kept
from headway_runtime.generation.settings import Settings
from headway_runtime.prepare.decoder import CONTRACT

_INPUTS = (
    {"name": "text_input", "datatype": "BYTES", "shape": [1]},
    {"name": "stream", "datatype": "BOOL", "shape": [1]},
    {"name": "exclude_input_in_output", "datatype": "BOOL", "shape": [1]},
    {"name": "sampling_parameters", "datatype": "BYTES", "shape": [1]},
)
_OUTPUTS = ({"name": "text_output", "datatype": "BYTES", "shape": [-1]},)


@dataclass(frozen=True, slots=True)
class Generator:
    """A loaded decoder, ready to serve. `fixed` is what its engine began with: knobs change the hot part of it."""

    engine: Engine
    facts: Facts
    fixed: Settings
    bounds: generation_knobs.Bounds
    kept: Kept
    padding: tuple[PaddingReport, ...] = ()  # sequences are joined without any

    @property
    def instances(self) -> int:
        """One step runs at a time."""
        return 1

    @property
    def waiting(self) -> int:
        """Answers that have not begun."""
        return self.engine.waiting

    def describe(self) -> dict[str, Any]:
        """What gRPC's streams take and answer, in the names of Triton's vLLM backend (`protocols.grpc.texts`)."""
        return {"inputs": [dict(entry) for entry in _INPUTS], "outputs": [dict(entry) for entry in _OUTPUTS]}

    def hash(self) -> str:
        """All generators are asked alike."""
        return hashlib.sha256(CONTRACT.encode()).hexdigest()[:16]

    def obey(self, asked: Knobs) -> knobs.Settings:
        """Apply these knobs from the next step on; returns what of them it can honour."""
        settings = generation_knobs.resolve(asked, self.bounds)
        limits = settings.limits
        self.engine.apply(
            replace(
                self.fixed,
                max_sequences=limits.max_batch,
                step_tokens=settings.step_tokens,
                prefix_cache=settings.prefix_cache,
                capacity=limits.capacity,
                prompt_bytes=limits.bytes,
                reject_non_finite=settings.non_finite is NonFinite.REJECT,
            )
        )
        return settings

    def room(self) -> GenerationReport:
        """Room for sequences, now."""
        kept = self.kept
        return self.engine.report().model_copy(
            update={
                "weights_bytes": kept.weights_bytes,
                "step_bytes": kept.step_bytes,
                "kernels": kept.kernels,
            }
        )

    def run(self) -> None:
        """The life of its thread: returns after `stop`. Raises what ended it."""
        self.engine.run()

    def sweep(self) -> None:
        """Drop what waits in vain, while long steps keep the thread from doing it. On the event loop."""
        self.engine.sweep()

    def stop(self) -> None:
        """End its thread after the current step. On the event loop."""
        self.engine.stop()

    def stretch(self, settings: knobs.Settings) -> float:
        """Steps of as many tokens and sequences as at first were warmed."""
        fixed = self.fixed
        return max(1.0, settings.step_tokens / fixed.step_tokens, settings.limits.max_batch / fixed.max_sequences)

    def busy_for(self) -> float:
        """Seconds that the current step has taken so far; 0 between steps."""
        return self.engine.busy_for()
