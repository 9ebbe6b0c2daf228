"""A request's way through the steps, in the order of the package's picture. On the event loop.

What a request may name: the BYTES inputs of the steps or, in their place, the tensors that they would give; every other
input that no program gives to another; the outputs of the last program, and the two of `labels`.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from headway_api.podconfig import Knobs

from headway_runtime.errors import InvalidRequestError, RequestError
from headway_runtime.knobs import Settings
from headway_runtime.serving.steps.crew import Crew
from headway_runtime.serving.steps.labels import LabelsStep
from headway_runtime.serving.steps.stage import Stage
from headway_runtime.serving.steps.text import TextStep
from headway_runtime.serving.steps.values import Core, go_on
from headway_runtime.serving.values import Call, Given, Reply, Value

if TYPE_CHECKING:
    from headway_runtime.pod import Model

Run = Callable[["Model", Settings, Given, Call], None]
"""Runs one program on checked inputs."""


class InputStep(Protocol):
    """A step that makes tensors of a BYTES input."""

    @property
    def input(self) -> str: ...

    @property
    def fills(self) -> tuple[str, ...]: ...

    @property
    def crew(self) -> Crew[Any, Any]: ...

    def call(self, given: Given, call: Call, then: Core) -> None: ...


@dataclass(frozen=True, slots=True)
class Pipeline:
    """`chain`: the programs in order, of which `main` is the pod's own. `inputs`: all tensors that a request may give,
    by name, as metadata show them; `outputs`: all that it may want, likewise.
    """

    text: TextStep | None
    image: InputStep | None
    chain: tuple[Stage, ...]
    main: Stage
    labels: LabelsStep
    inputs: Mapping[str, Mapping[str, Any]]
    outputs: Sequence[Mapping[str, Any]]

    @property
    def steps(self) -> tuple[InputStep, ...]:
        """Those that make tensors."""
        return tuple(step for step in (self.text, self.image) if step is not None)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The other programs that run."""
        return tuple(stage for stage in self.chain if stage is not self.main)

    def touches(self, given: Given) -> bool:
        """Whether there is anything to do for this request beside running the program."""
        return len(self.chain) > 1 or self.labels.wants(given) or self.text is not None or self.image is not None

    def call(self, given: Given, call: Call, run: Run) -> None:
        """Answer a request by one call of `call.done`. Raises RequestError instead."""
        self._check(given)
        if self.labels.wants(given):
            given, call = self.labels.call(given, call)

        def programs(given: Given, call: Call) -> None:
            if len(self.chain) == 1:
                run(self.main.model, self.main.settings, given, call)
            else:
                _Programs(self.chain, run, given, call).next(None)

        core: Core = programs
        for step in self.steps:
            if step.input in given.inputs:
                core = _before(step, core)
        core(given, call)

    def describe(self) -> dict[str, Any]:
        """The `inputs` and `outputs` of a metadata answer. What a step makes stands with the step's own input, as what
        may be given in its place.
        """
        made = {fill: step.input for step in self.steps for fill in step.fills}
        inputs = []
        for step in self.steps:
            instead = [self.inputs[fill] for fill in step.fills]
            inputs.append({"name": step.input, "datatype": "BYTES", "shape": [-1], "parameters": {"instead": instead}})
        inputs += [dict(spec) for name, spec in self.inputs.items() if name not in made]
        return {"inputs": inputs, "outputs": [dict(spec) for spec in self.outputs]}

    def run(self) -> None:
        """The life of the threads of all programs, which live and end together. Raises what ended one of them."""
        errors: list[BaseException] = []

        def live(stage: Stage) -> None:
            try:
                stage.model.engine.run()
            except BaseException as error:  # whatever it is: without one of its programs, a pod answers nothing
                errors.append(error)
            finally:
                for other in self.chain:
                    other.model.engine.stop()

        threads = [
            threading.Thread(target=live, args=(stage,), name=f"headway-{stage.name}", daemon=True)
            for stage in self.stages
        ]
        for thread in threads:
            thread.start()
        live(self.main)
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]

    def sweep(self) -> None:
        """Drop what waits in vain."""
        for step in self.steps:
            if step.crew.waiting:
                step.crew.sweep()
        for stage in self.stages:
            if stage.model.engine.waiting_rows:
                stage.model.engine.sweep()

    def busy_for(self) -> float:
        """Seconds that the longest current turn of a step, or run of its programs, has taken."""
        steps = (step.crew.busy_for() for step in self.steps)
        stages = (stage.model.engine.busy_for() for stage in self.stages)
        return max((*steps, *stages), default=0.0)

    def apply(self, asked: Knobs, settings: Settings) -> None:
        """New knobs: as asked for, and as the pod's own program honours them."""
        self.main.settings = settings
        for step in self.steps:
            step.crew.capacity = settings.limits.capacity
        for stage in self.stages:
            stage.apply(asked)

    def stop(self) -> None:
        """End its threads."""
        for step in self.steps:
            step.crew.stop()
        for stage in self.stages:
            stage.model.engine.stop()

    def _check(self, given: Given) -> None:
        """Raises InvalidRequestError for a name that no step and no program knows, and for one that is missing."""
        made = {fill: step for step in self.steps for fill in step.fills}
        known = {step.input for step in self.steps} | self.inputs.keys()
        for name in given.inputs:
            if name not in known:
                raise InvalidRequestError(f"input {name[:100]!r} is not one of this model's: {self._listed()}")
        for name in self.inputs:
            step = made.get(name)
            if name not in given.inputs and (step is None or step.input not in given.inputs):
                missing = step.input if step is not None and not given.inputs.keys() & set(step.fills) else name
                raise InvalidRequestError(f"input {missing!r} is missing; this model takes {self._listed()}")

    def _listed(self) -> str:
        made = {fill for step in self.steps for fill in step.fills}
        steps = [f"{step.input!r} (or {', '.join(map(repr, step.fills))})" for step in self.steps]
        return ", ".join((*steps, *(repr(name) for name in self.inputs if name not in made)))


def _before(step: InputStep, core: Core) -> Core:
    def then(given: Given, call: Call) -> None:
        step.call(given, call, core)

    return then


class _Programs:
    """One request through several programs: what each returns is there, by name, for those after it."""

    def __init__(self, chain: Sequence[Stage], run: Run, given: Given, call: Call) -> None:
        self._chain, self._run, self._call, self._wanted = chain, run, call, given.outputs
        self._values: dict[str, Value] = dict(given.inputs)
        self._at = 0
        self._waited, self._rows = 0.0, 0

    def next(self, reply: Reply | None) -> None:
        """Run the next program; the reply is that of the one before."""
        if reply is not None:
            self._values |= {output.name: output.value for output in reply.outputs}
        stage = self._chain[self._at]
        self._at += 1
        later = {name for other in self._chain[self._at :] for name in other.inputs}
        wanted = tuple(name for name in stage.outputs if name in later) if later else self._wanted
        given = Given({name: self._values[name] for name in stage.inputs}, wanted)
        self._run(stage.model, stage.settings, given, replace(self._call, done=self._done))

    def _done(self, result: Reply | RequestError | None) -> None:
        if not isinstance(result, Reply):
            self._call.done(result)
            return
        self._waited += result.queue_seconds
        self._rows = max(self._rows, result.batch_rows)
        if self._at < len(self._chain):
            go_on(self._call, self.next, result)
        else:
            self._call.done(replace(result, queue_seconds=self._waited, batch_rows=self._rows))
