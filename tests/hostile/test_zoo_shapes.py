"""The shape gate against real runs: every honest program passes it, and what it derives is what the program then does:
the same shapes of outputs, and about the same peak of live bytes, of which it may only ever claim less.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from headway_runtime.prepare import repack
from headway_runtime.program import Program, functions
from headway_runtime.program.load import read_document
from headway_runtime.program.machine import Builder, Machine
from headway_runtime.program.shape_gate import ShapeGate
from headway_runtime.program.shape_gate.ledger import Ledger
from headway_runtime.program.weights import open_weights

from tests.hostile import zoo
from tests.hostile.test_honest_zoo import copied, prepared, tensors, with_batch

Exported = Callable[[str], Path]
CPU = torch.device("cpu")
LOOPS = {"scan", "map"}


class CountingBuilder(Builder):
    """The real machine; a ledger counts what its instructions answer with."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(functions.resolve, functions.constant(CPU))
        self._ledger = ledger

    def _inner(self) -> Builder:
        return CountingBuilder(self._ledger)

    def _step(self, item: Any) -> Callable[..., Any]:
        return self._counted(super()._step(item))

    def _counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            result = function(*args, **named)
            self._count(result)
            return result

        return call

    def _count(self, result: Any) -> None:
        if isinstance(result, torch.Tensor):
            self._ledger.add(result, "")
        elif isinstance(result, list | tuple):
            for item in result:
                self._count(item)

    def finish(self, inputs: list[str], outputs: list[str], *, copies: Sequence[str] = ()) -> Machine:
        clone = self._counted(torch.clone)
        self._steps[:0] = [(clone, [self._names[name]], self._names[name]) for name in copies]
        return super().finish(inputs, outputs)


def real_run(directory: Path, document: Any, inputs: list[torch.Tensor]) -> int:
    """Peak of live bytes beside the weights."""
    ledger = Ledger()
    builder = CountingBuilder(ledger)
    for item in document["inputs"]:
        builder.value(item["value"])
    for name, tensor in open_weights(directory / repack.WEIGHTS, document["weights"], CPU).items():
        ledger.pin(tensor)
        builder.value(name, tensor)
    for instruction in document["nodes"]:
        builder.instruction(instruction)
    written = [i["value"] for i in (*document["inputs"], *document["weights"]) if i["written"]]
    sides = [[i["value"] for i in document[side]] for side in ("inputs", "outputs")]
    machine = builder.finish(*sides, copies=written)
    for tensor in inputs:
        ledger.add(tensor, "")
    with torch.inference_mode():
        machine.call(*inputs)
    return ledger.peak


@pytest.mark.parametrize("name", sorted(zoo.PROGRAMS))
def test_the_gate_derives_what_a_run_does(name: str, exported: Exported, tmp_path: Path) -> None:
    case = zoo.PROGRAMS[name]
    program: Program = prepared(exported(name), tmp_path / "prepared")
    _, document = read_document(tmp_path / "prepared")
    gate = ShapeGate(document, program)
    for size in (None, *case.batches):
        inputs = tensors((copied(with_batch(case.args, size)), dict(case.kwargs)))
        need = gate.measure(program.bind([tuple(i.shape) for i in inputs]))
        peak = real_run(tmp_path / "prepared", document, inputs)
        if LOOPS & {node["op"] for node in document["nodes"]}:
            continue  # the ledger of the real run does not see the rows that a loop holds until it stacks them
        assert need.peak <= peak, "more than a run takes: an honest program could be refused"
        assert gate.unknown or need.peak > 0.8 * peak  # a view here may be a copy there, and small results be left out
