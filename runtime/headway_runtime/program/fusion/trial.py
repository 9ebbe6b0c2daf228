"""Two small steps are run as the program is written and watched; what was fused then runs the same steps, and another.
Where the logits differ, the program runs as it is written.

The products themselves are the same in both, whatever they are, so that something cheap stands in for each
(`packing.stand_ins`): a trial of a large decoder reads none of its weights.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from headway_runtime.kernels.cache import PagedCache
from headway_runtime.kernels.pointwise import Pointwise
from headway_runtime.logs import log
from headway_runtime.prepare.decoder import ATTENTION, BLOCK_TOKENS, DecoderGeometry
from headway_runtime.prepare.translate.graph import results
from headway_runtime.program import load
from headway_runtime.program.fusion.fuse import Fused, fuse
from headway_runtime.program.fusion.graph import Run
from headway_runtime.program.machine import Machine

Resolve = Callable[[str], Callable[..., Any]]
Step = Sequence[torch.Tensor]
"""Inputs in the contract's order."""

WATCHED, WIDTHS = ((4, 3), (2, 6, 2)), (2, 1)
"""New tokens of each sequence of the steps that are watched, and blocks: no size of one is that of the other."""
MOST_TOKENS = 10
EXACT = 1e-4
"""Of the largest logit: between sums in another order, which differ by less than a hundredth of it, and mistakes."""
MOST_BYTES = 512 << 20
"""Of all values of a step that is watched, and of a small cache: they are kept at once, where a step that answers gives
back what nobody reads any more, and the memory of a pod was shared out for that one.
"""
_BLOCKS = 8
_CPU = torch.device("cpu")
_FAILURES = (RuntimeError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


@dataclass(frozen=True, slots=True)
class Written:
    """A decoder as it is written: its document with inputs in the contract's order, the tensors that it reads, and what
    its operators stand for (all but attention).
    """

    document: Mapping[str, Any]
    constants: Mapping[str, torch.Tensor]
    resolve: Resolve
    geometry: DecoderGeometry

    @property
    def outputs(self) -> list[str]:
        """The value that is its output."""
        return [output["value"] for output in self.document["outputs"]]

    def answer(self, step: Step) -> torch.Tensor:
        """Logits of one step, over an empty cache."""
        found: torch.Tensor = self.machine(self.outputs).call(*step)[0]
        return found

    def machine(self, outputs: Sequence[str]) -> Machine:
        """One that answers with these values, over a small cache of its own."""
        return _machine(self, self.document["nodes"], self.constants, outputs, self.resolve)


def fused(written: Written, kernels: Pointwise) -> Fused | None:
    """The program with fewer operators; None where there is nothing to gain, or where its answers are others."""
    try:
        with torch.inference_mode():
            return _fused(written, kernels)
    except _FAILURES as error:
        log("not_fused", reason=_first(error))  # what is wrong shows when it is warmed
        return None


def alike(written: Written, other: Written, *, tolerance: float) -> bool:
    """Whether two programs answer alike, within `tolerance` of the largest logit."""
    try:
        with torch.inference_mode():
            wanted = [written.answer(step) for step in _steps()]
            return _agree(wanted, other.answer, tolerance, what="not_widened")
    except _FAILURES as error:
        log("not_widened", reason=_first(error))
        return False


def _fused(written: Written, kernels: Pointwise) -> Fused | None:
    nodes = written.document["nodes"]
    *steps, smallest = _steps()
    runs = [_watch(written, step) for step in steps]
    (output,) = written.outputs
    found = fuse(nodes, written.constants, runs, written.outputs, kernels=kernels)
    if found is None or len(found.nodes) == len(nodes):
        return None
    again = _machine(written, found.nodes, found.constants, found.outputs, _with(written.resolve, found.functions))
    wanted = [*(run[output] for run in runs), written.answer(smallest)]
    if not _agree(wanted, lambda step: again.call(*step)[0], EXACT, what="not_fused"):
        return None
    log("fused", operators=len(nodes), remaining=len(found.nodes))
    return found


def _agree(wanted: Sequence[torch.Tensor], answer: Callable[[Step], torch.Tensor], tolerance: float, what: str) -> bool:
    for step, logits in zip(_steps(), wanted, strict=True):
        difference = float((logits - answer(step)).abs().max() / logits.abs().max())
        if not difference <= tolerance:
            log(what, level="warning", reason="the logits differ", by=difference)
            return False
    return True


def _first(error: Exception) -> str:
    return str(error).partition("\n")[0][:300]


def _watch(written: Written, step: Sequence[torch.Tensor]) -> Run:
    names = [name for node in written.document["nodes"] for name in results(node["out"])]
    watched = replace(written, resolve=_counted(written.resolve, written.constants.values()))
    values = watched.machine(names).call(*step)
    return {
        **{item["value"]: tensor for item, tensor in zip(written.document["inputs"], step, strict=True)},
        **dict(zip(names, values, strict=True)),
    }


def _machine(
    written: Written,
    nodes: Sequence[Mapping[str, Any]],
    constants: Mapping[str, torch.Tensor],
    outputs: Sequence[str],
    resolve: Resolve,
) -> Machine:
    if written.geometry.bytes_per_token(4) * BLOCK_TOKENS * _BLOCKS > MOST_BYTES:
        raise RuntimeError(f"a cache of {_BLOCKS} blocks takes more than {MOST_BYTES:,} bytes")
    cache = PagedCache(written.geometry, blocks=_BLOCKS, dtype=torch.float32)
    document = {**written.document, "nodes": nodes, "outputs": [{"value": name} for name in outputs]}
    return load.build(document, constants, _CPU, function=_with(resolve, {ATTENTION: cache.attend}))


def _counted(resolve: Resolve, known: Iterable[torch.Tensor]) -> Resolve:
    """The same operators, until what they made takes more than `MOST_BYTES`; memory of what is known is not theirs."""
    counted = {tensor.untyped_storage().data_ptr() for tensor in known}
    made = 0

    def count(found: Any) -> None:
        nonlocal made
        for tensor in found if isinstance(found, (list, tuple)) else [found]:
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage().data_ptr() not in counted:
                counted.add(tensor.untyped_storage().data_ptr())
                made += tensor.untyped_storage().nbytes()
        if made > MOST_BYTES:
            raise RuntimeError(f"the values of a step take more than {MOST_BYTES:,} bytes")

    def resolved(name: str) -> Callable[..., Any]:
        function = resolve(name)

        def call(*args: Any, **named: Any) -> Any:
            found = function(*args, **named)
            count(found)
            return found

        return call

    return resolved


def _with(resolve: Resolve, more: Mapping[str, Callable[..., Any]]) -> Resolve:
    return lambda name: more[name] if name in more else resolve(name)


def _steps() -> list[Step]:
    """Those that are watched, and one token alone."""
    return [*(_step(news, width) for news, width in zip(WATCHED, WIDTHS, strict=True)), _step((1,), 1)]


def _step(news: Sequence[int], width: int) -> list[torch.Tensor]:
    """Prompts of these lengths, in the contract's order of inputs; block tables of `width`."""
    int32 = torch.int32
    starts = torch.tensor([0, *news]).cumsum(0)
    tables = torch.arange(1, 1 + len(news) * width, dtype=int32).view(len(news), width)
    positions = torch.cat([torch.arange(n) for n in news])
    slots = torch.cat([int(tables[i, 0]) * BLOCK_TOKENS + torch.arange(n) for i, n in enumerate(news)])
    return [
        positions % 2,  # tokens that every vocabulary has
        positions,
        slots,
        tables,
        torch.tensor(news, dtype=int32),
        starts.to(int32),
        torch.arange(max(0, sum(news) - len(news) - 1), sum(news)),
    ]
