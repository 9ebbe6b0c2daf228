"""Two small steps are run as the program is written and watched; what was fused then runs the same steps, and another.
Where the logits differ, the program runs as it is written.

All of it multiplies by the weights as they were exported: in fewer bits, a sum in another order may be rounded to
another number, and one could not tell that from a mistake.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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

WATCHED, WIDTHS = ((4, 3), (2, 6, 2)), (2, 1)
"""New tokens of each sequence of the steps that are watched, and blocks: no size of one is that of the other."""
MOST_TOKENS = 10
_BLOCKS = 8
_CPU = torch.device("cpu")

TOLERANCE = 1e-3
"""Of the largest logit: between sums in another order, which differ by less than a hundredth of it, and mistakes."""


@dataclass(frozen=True, slots=True)
class Written:
    """A decoder as it is written: its document with inputs in the contract's order, the tensors that it reads, and what
    its operators stand for (all but attention).
    """

    document: Mapping[str, Any]
    constants: Mapping[str, torch.Tensor]
    resolve: Resolve
    geometry: DecoderGeometry

    def machine(self, outputs: Sequence[str]) -> Machine:
        """One that answers with these values, over a small cache of its own."""
        return _machine(self, self.document["nodes"], self.constants, outputs, self.resolve)


def fused(written: Written, kernels: Pointwise) -> Fused | None:
    """The program with fewer operators; None where there is nothing to gain, or where its answers are others."""
    try:
        with torch.inference_mode():
            return _fused(written, kernels)
    except (RuntimeError, ArithmeticError, IndexError, TypeError, ValueError) as error:
        log("not_fused", reason=str(error).partition("\n")[0][:300])  # what is wrong shows when it is warmed
        return None


def _fused(written: Written, kernels: Pointwise) -> Fused | None:
    nodes = written.document["nodes"]
    steps = [_step(news, width) for news, width in zip(WATCHED, WIDTHS, strict=True)]
    runs = [_watch(written, step) for step in steps]
    outputs = [output["value"] for output in written.document["outputs"]]
    found = fuse(nodes, written.constants, runs, outputs, kernels=kernels)
    if found is None or len(found.nodes) == len(nodes):
        return None
    smallest = _step((1,), 1)
    wanted = [run[outputs[0]] for run in runs] + list(written.machine(outputs).call(*smallest))
    again = _machine(written, found.nodes, found.constants, found.outputs, _with(written.resolve, found.functions))
    for step, logits in zip((*steps, smallest), wanted, strict=True):
        difference = float((logits - again.call(*step)[0]).abs().max() / logits.abs().max())
        if not difference <= TOLERANCE:
            log("not_fused", level="warning", reason="the logits differ", by=difference)
            return None
    log("fused", operators=len(nodes), remaining=len(found.nodes))
    return found


def _watch(written: Written, step: Sequence[torch.Tensor]) -> Run:
    names = [name for node in written.document["nodes"] for name in results(node["out"])]
    values = written.machine(names).call(*step)
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
    cache = PagedCache(written.geometry, blocks=_BLOCKS, dtype=torch.float32)
    document = {**written.document, "nodes": nodes, "outputs": [{"value": name} for name in outputs]}
    return load.build(document, constants, _CPU, function=_with(resolve, {ATTENTION: cache.attend}))


def _with(resolve: Resolve, more: Mapping[str, Callable[..., Any]]) -> Resolve:
    return lambda name: more[name] if name in more else resolve(name)


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
        torch.arange(len(news) + 1) if sum(news) > len(news) else torch.arange(1),
    ]
