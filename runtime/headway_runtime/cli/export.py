"""`headway export`."""

import logging
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from headway_runtime.export import Exported, Facts

_SOURCE = "FILE.py:NAME or MODULE:NAME of a torch.nn.Module, or of a function that returns one; or a .pt2 that exists"
_INPUT = "an argument of forward: its type and axes, a name with a range where the size may vary; once for each"
_SAMPLE = "golden inputs: an .npz file with an array for each input; may be repeated"


def export(
    source: Annotated[str, typer.Argument(help=_SOURCE)],
    out: Annotated[Path, typer.Option("--out", "-o", dir_okay=False, help="where the .pt2 goes")],
    inputs: Annotated[list[str] | None, typer.Option("--input", "-i", metavar="NAME=TYPE[AXES]", help=_INPUT)] = None,
    outputs: Annotated[
        list[str] | None, typer.Option("--output", metavar="NAME", help="names of the outputs, in order")
    ] = None,
    ranges: Annotated[
        list[str] | None,
        typer.Option("--range", metavar="NAME=LOW..HIGH", help="values of a generated input, as in ids=0..30521"),
    ] = None,
    samples: Annotated[
        int | None, typer.Option(min=0, help="golden samples of random inputs (2, without --sample)")
    ] = None,
    sample: Annotated[list[Path] | None, typer.Option(metavar="FILE.npz", help=_SAMPLE)] = None,
    seed: Annotated[int, typer.Option(help="of the random inputs")] = 0,
    pad: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="the value that fills an input up, as in ids=0")
    ] = None,
    task: Annotated[str | None, typer.Option(help="what it is for, as in text-classification")] = None,
    labels: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="the classes: a text file, one a line, in order")
    ] = None,
    tokenizer: Annotated[Path | None, typer.Option(exists=True, dir_okay=False, help="a tokenizer.json")] = None,
    preprocessing: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="a fact for clients, as in size=224; may be repeated")
    ] = None,
    rtol: Annotated[float | None, typer.Option(help="relative tolerance of the golden answers")] = None,
    atol: Annotated[float | None, typer.Option(help="absolute tolerance of the golden answers")] = None,
    program: Annotated[str | None, typer.Option(help="of a .pt2 that holds several: which of them")] = None,
) -> None:
    r"""Export a model to a .pt2 that Headway serves, and prove it.

    The file is inspected, loaded and run as in a pod, and its answers are compared with the model's, before it is
    written. From your own code, which is executed:

    headway export model.py:make_model -o sentiment.pt2 --output score
    --input 'ids=int64\[batch:1..64,sequence:1..256]' --range ids=0..999

    From a .pt2 that torch.export.save wrote, of which nothing is executed; it gets names and golden samples:

    headway export plain.pt2 -o sentiment.pt2 --output score
    --input 'ids=int64\[batch,sequence]' --samples 2

    An axis is a number, or a name with its least and largest size (1.. is unbounded; 8..256/8: multiples of 8).
    Axes of one name have one size. More: docs/export.md.
    """
    from headway_runtime.export import ExportError, Facts

    try:
        given = Facts(
            outputs=outputs,
            padding={name: _number(value, "--pad") for name, value in _pairs(pad, "--pad")},
            task=task,
            labels=labels.read_text().splitlines() if labels else (),
            tokenizer=tokenizer,
            preprocessing={name: _fact(value) for name, value in _pairs(preprocessing, "--preprocessing")},
            rtol=rtol,
            atol=atol,
        )
        ask = (inputs or [], ranges or [], sample or [], samples, seed)
        with _quiet():
            if source.endswith(".pt2") or zipfile.is_zipfile(source):
                done = _annotate(Path(source), out, given, program, *ask)
            else:
                done = _export(source, out, given, *ask)
    except ExportError as error:
        typer.echo(f"headway export: {error}", err=True)
        raise typer.Exit(1) from None
    _tell(done)


def _export(
    source: str,
    out: Path,
    given: "Facts",
    inputs: Sequence[str],
    ranges: Sequence[str],
    files: Sequence[Path],
    count: int | None,
    seed: int,
) -> "Exported":
    import torch

    from headway_runtime.export import ExportError, specs
    from headway_runtime.export import source as sources
    from headway_runtime.export.model import export as export_module
    from headway_runtime.export.sizes import Size

    module = sources.load(source)
    if not inputs:
        raise ExportError(f"say what forward takes, one --input for each argument: {specs.hint(module)}")
    described = specs.parse_inputs(inputs)
    limits = specs.parse_ranges(ranges, [s.name for s in described])
    random = torch.Generator().manual_seed(seed)
    sizes = specs.dimensions(described)
    example = specs.make(described, specs.tracing_sizes(sizes), limits, random)
    shapes = {s.name: {axis: n for axis, n in enumerate(s.axes) if isinstance(n, Size)} for s in described}
    golden = [specs.read(file, described) for file in files]
    wanted = count if count is not None else 0 if files else 2
    golden += specs.samples(described, wanted, limits, random)
    return export_module(module, example, out, shapes, given, golden, generated=not files)


def _annotate(
    source: Path,
    out: Path,
    given: "Facts",
    program: str | None,
    inputs: Sequence[str],
    ranges: Sequence[str],
    files: Sequence[Path],
    count: int | None,
    seed: int,
) -> "Exported":
    import torch

    from headway_runtime.export import ExportError, annotate, annotations, proof, specs

    if not source.is_file():
        raise ExportError(f"there is no file {source}")
    with proof.opened(source, program) as pod:
        names = annotations.names_of(pod.program, specs.parse_inputs(inputs))
        golden = None
        if files or count is not None:
            described = annotations.specs_of(pod.program)
            limits = specs.parse_ranges(ranges, [s.name for s in described])
            golden = [specs.read(file, described) for file in files]
            golden += specs.samples(described, count or 0, limits, torch.Generator().manual_seed(seed))
    return annotate(source, path=out, dimensions=names, given=given, samples=golden, program=program)


def _tell(done: "Exported") -> None:
    compared = f"{done.runs} runs compared, largest difference {done.largest_difference:.3g}"
    lines = [
        f"{done.path}: written, {done.bytes:,} bytes",
        f"  {done.digest}",
        f"  inspected and loaded as in a pod; {compared if done.runs else 'no run was compared'}",
        f"  {done.samples} golden samples recorded",
        *(f"  note: {note}" for note in done.notes),
        f"next: headway inspect {done.path}, headway serve {done.path}",
    ]
    typer.echo("\n".join(lines))


def _pairs(texts: Sequence[str] | None, option: str) -> Iterator[tuple[str, str]]:
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise typer.BadParameter(f"{text!r}: write NAME=VALUE", param_hint=option)
        yield name, value


def _number(text: str, option: str) -> float:
    value = _fact(text)
    if isinstance(value, str):
        raise typer.BadParameter(f"{text!r} is no number", param_hint=option)
    return value


def _fact(text: str) -> str | int | float | bool:
    """``224``, ``0.5``, ``true``, or text."""
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


@contextmanager
def _quiet() -> Iterator[None]:
    """torch logs pages about a graph that it cannot export; our own message says the same in a line."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
