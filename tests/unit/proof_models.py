"""Small models of one thing each, exported and prepared as a user's would be, and what the trials say of them."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from headway_api.podconfig import PaddingReport
from headway_api.types import Padding
from headway_runtime.batching.layout import Layout
from headway_runtime.buckets import Buckets, resolve_buckets
from headway_runtime.program import Program, load_program
from headway_runtime.program.load import read_document
from headway_runtime.proof.padding import prove_padding
from headway_runtime.proof.samples import Material, gather
from headway_runtime.proof.trial import Request
from torch import nn
from torch.export import Dim

from tests.unit.small_models import prepare

WORDS = 40
BATCH, SEQUENCE = Dim("batch", min=1, max=16), Dim("sequence", min=1, max=128)
BUCKETS = {"batch": [1, 8], "sequence": [16, 128]}


@dataclass(frozen=True)
class Opened:
    """A prepared program, and what a pod has of it before the trials."""

    directory: Path
    document: dict[str, Any]
    program: Program
    layout: Layout
    buckets: Buckets
    material: Material

    def request(self) -> Request:
        return Request(self.program, self.layout, self.buckets, self.material, self.document)

    def padding(self, asked: Padding = Padding.AUTO, seconds: float = 60) -> tuple[Layout, list[PaddingReport]]:
        with torch.inference_mode():
            return prove_padding(self.request(), asked, warm_seconds=seconds)


def export(
    module: nn.Module,
    inputs: Mapping[str, torch.Tensor],
    file: Path,
    *,
    shapes: Mapping[str, Any] | None = None,
    examples: bool = True,
) -> Path:
    """A plain export. ``shapes``: as torch has it; else batch and sequence are the first axes of every input."""
    dynamic = shapes or {name: dict(list({0: BATCH, 1: SEQUENCE}.items())[: t.dim()]) for name, t in inputs.items()}
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(module.eval(), (), dict(inputs), dynamic_shapes=dict(dynamic), strict=False)
    if not examples:
        program.example_inputs = None
    torch.export.save(program, file)
    return file


def opened(
    file: Path,
    *,
    buckets: Mapping[str, Sequence[int]] | None = None,
    dimensions: Mapping[str, str] | None = None,
) -> Opened:
    """Prepared, loaded, and its samples read."""
    directory = prepare(file, file.parent / f"{file.stem}-prepared")
    program = load_program(directory, dimension_names=dimensions or {})
    name, document = read_document(directory)
    material = gather(directory, (name, document), program)
    return Opened(directory, document, program, Layout.of(program), resolve_buckets(program, buckets), material)


def ids(rows: int = 4, length: int = 9) -> torch.Tensor:
    return torch.randint(1, WORDS, (rows, length), generator=torch.Generator().manual_seed(11))


def mask(rows: int = 4, length: int = 9) -> torch.Tensor:
    """Rows of different lengths."""
    return (torch.arange(length) < torch.tensor([length, 5, 7, 1])[:rows, None]).long()
