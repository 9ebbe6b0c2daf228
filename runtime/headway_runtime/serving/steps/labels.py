"""Names of classes in an answer: two outputs that the record declares, and what a client may ask of any output.

The second is Triton's classification extension: an output asked for with the parameter `classification: k` is answered
as BYTES, its best k classes as texts `score:index:label`, of the values as they are.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch

from headway_runtime.errors import InvalidRequestError, RequestError
from headway_runtime.prepare.beside.steps import Labels
from headway_runtime.serving.values import BytesArray, Call, Given, Output, Reply


class LabelsStep:
    """`outputs`: those of the last program, in order. `declared`: None when only clients ask."""

    def __init__(self, declared: Labels | None, names: Sequence[str], outputs: Sequence[str]) -> None:
        self._declared = declared
        self.names = tuple(name.encode() for name in names)
        self._outputs = tuple(outputs)
        self._all = (*self._outputs, *((declared.label, declared.score) if declared else ()))

    def wants(self, given: Given) -> bool:
        """Whether this request needs it."""
        return bool(given.classes) or self._declared is not None

    def call(self, given: Given, call: Call) -> tuple[Given, Call]:
        """The request and the call for what runs before. Raises InvalidRequestError."""
        wanted = self._all if given.outputs is None else given.outputs
        for name in given.classes:
            if name not in self._outputs:
                raise InvalidRequestError(f"output {name[:100]!r} has no classes; those that may are {self._outputs}")
        declared = self._declared
        added = () if declared is None else (declared.label, declared.score)
        plain = tuple(name for name in wanted if name not in added)
        if declared is not None and len(plain) < len(wanted) and declared.output not in plain:
            plain = (*plain, declared.output)
        return Given(given.inputs, plain), replace(call, done=self._named(given, wanted, call.done))

    def _named(
        self, given: Given, wanted: Sequence[str], done: Callable[[Reply | RequestError | None], None]
    ) -> Callable[[Reply | RequestError | None], None]:
        def named(result: Reply | RequestError | None) -> None:
            if isinstance(result, Reply):
                try:
                    result = replace(result, outputs=self._answer(result.outputs, given.classes, wanted))
                except RequestError as error:
                    result = error
            done(result)

        return named

    def _answer(
        self, outputs: Sequence[Output], classes: Mapping[str, int], wanted: Sequence[str]
    ) -> tuple[Output, ...]:
        found = {output.name: output for output in outputs}
        declared = self._declared
        if declared is not None and (declared.label in wanted or declared.score in wanted):
            label, score = self._best(declared, found[declared.output])
            found |= {label.name: label, score.name: score}
        for name, most in classes.items():
            if name in found:
                found[name] = self._classified(found[name], most)
        return tuple(found[name] for name in wanted)

    def _best(self, declared: Labels, output: Output) -> tuple[Output, Output]:
        scores = _floats(output)
        if declared.softmax:
            scores = scores.softmax(-1)
        best = scores.topk(declared.top, dim=-1)
        names = tuple(self.names[at] for at in best.indices.reshape(-1).tolist())
        return (
            Output(declared.label, "BYTES", BytesArray(tuple(best.indices.shape), names)),
            Output(declared.score, "FP32", best.values),
        )

    def _classified(self, output: Output, most: int) -> Output:
        scores = _floats(output)
        if not scores.dim():
            raise InvalidRequestError(f"output {output.name!r} is one number and has no classes")
        best = scores.topk(min(most, scores.shape[-1]), dim=-1)
        labels = self.names if len(self.names) == scores.shape[-1] else ()
        pairs = zip(best.values.reshape(-1).tolist(), best.indices.reshape(-1).tolist(), strict=True)
        items = tuple(_spelled(value, at, labels) for value, at in pairs)
        return Output(output.name, "BYTES", BytesArray(tuple(best.indices.shape), items))


def _floats(output: Output) -> torch.Tensor:
    if not isinstance(output.value, torch.Tensor):
        raise InvalidRequestError(f"output {output.name!r} holds texts and has no classes")
    return output.value.float()


def _spelled(value: float, at: int, labels: Sequence[bytes]) -> bytes:
    text = b"%f:%d" % (value, at)
    return text + b":" + labels[at] if labels else text
