"""`headway export`."""

import logging
import os
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headway_runtime.cli import pairs
from headway_runtime.cli.arguments import decoder

if TYPE_CHECKING:
    from headway_runtime.export import Exported
    from headway_runtime.export.saying import Say

_SOURCE = (
    "FILE.py:NAME or MODULE:NAME of a torch.nn.Module, or of a function that returns one; or a .pt2 that exists; with "
    "--task generate a folder of Hugging Face, a .gguf file, or a function that returns (model, tokenizer)"
)
_INPUT = "an argument of forward: its type and axes, a name with a range where the size may vary; once for each"
_TEXT = "a BYTES input of texts, by the keys ids, mask, maxLength, truncate (docs/steps.md); needs --tokenizer"
_IMAGE = "a BYTES input of encoded images, by the keys tensor, resize, crop, scale, mean, std (docs/steps.md)"
_CLASSIFY = "outputs of the best labels and their scores, by the keys output, top, softmax, label, score; with --labels"
_BEFORE = "a program that runs first: its outputs are inputs of this one, by name"
_AFTER = "a program that runs last: its inputs are outputs of this one, by name"
_TASK = "what it is for, as in text-classification; generate: a decoder, from which text is generated"
_DTYPE = "with --task generate: of the weights, float32 (the default) or bfloat16"
_DRAFT = "with --task generate: a smaller decoder of the same tokens, as SOURCE, which proposes what this one checks"
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
    task: Annotated[str | None, typer.Option(help=_TASK)] = None,
    labels: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="the classes: a text file, one a line, in order")
    ] = None,
    tokenizer: Annotated[Path | None, typer.Option(exists=True, dir_okay=False, help="a tokenizer.json")] = None,
    preprocessing: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="a fact for clients, as in size=224; may be repeated")
    ] = None,
    text: Annotated[str | None, typer.Option(metavar="KEY=VALUE,…", help=_TEXT)] = None,
    image: Annotated[str | None, typer.Option(metavar="KEY=VALUE,…", help=_IMAGE)] = None,
    classify: Annotated[str | None, typer.Option(metavar="KEY=VALUE,…", help=_CLASSIFY)] = None,
    before: Annotated[Path | None, typer.Option(exists=True, dir_okay=False, metavar="FILE.pt2", help=_BEFORE)] = None,
    after: Annotated[Path | None, typer.Option(exists=True, dir_okay=False, metavar="FILE.pt2", help=_AFTER)] = None,
    rtol: Annotated[float | None, typer.Option(help="relative tolerance of the golden answers")] = None,
    atol: Annotated[float | None, typer.Option(help="absolute tolerance of the golden answers")] = None,
    program: Annotated[str | None, typer.Option(help="of a .pt2 that holds several: which of them")] = None,
    dtype: Annotated[str | None, typer.Option(metavar="TYPE", help=_DTYPE)] = None,
    draft: Annotated[str | None, typer.Option(metavar="SOURCE", help=_DRAFT)] = None,
) -> None:
    r"""Export a model to a .pt2 that Headway serves, and prove it.

    The file is inspected, loaded and run as in a pod, and its answers are compared with the model's, before it is
    written. From your own code, which is executed:

    headway export model.py:make_model -o sentiment.pt2 --output score
    --input 'ids=int64\[batch:1..64,sequence:1..256]' --range ids=0..999

    From a .pt2 that torch.export.save wrote, of which nothing is executed; it gets names and golden samples:

    headway export plain.pt2 -o sentiment.pt2 --output score
    --input 'ids=int64\[batch,sequence]' --samples 2

    A decoder of Hugging Face, from a local folder or a GGUF file, that generates text (docs/generation.md):

    headway export --task generate ./SmolLM2-135M-Instruct -o chat.pt2

    An axis is a number, or a name with its least and largest size (1.. is unbounded; 8..256/8: multiples of 8).
    Axes of one name have one size. More: docs/export.md.
    """
    if task == "generate":
        others = (inputs, outputs, ranges, samples, sample, pad, labels, tokenizer, preprocessing, text, image)
        if any(given is not None for given in (*others, classify, before, after, rtol, atol, program)):
            raise typer.BadParameter("goes with --out, --dtype and --draft alone", param_hint="--task generate")
        _generate(source, out, dtype or "float32", draft)
        return
    if (what := decoder(Path(source))) is not None:
        raise typer.BadParameter(
            f"{source} is {what}. Export it with its task: headway export --task generate {source} -o {out}"
        )
    if dtype is not None or draft is not None:
        raise typer.BadParameter("goes with --task generate", param_hint="--dtype" if draft is None else "--draft")
    say = _said()
    say("importing torch")
    from headway_runtime.export import ExportError, Facts
    from headway_runtime.export.asked import Asked, from_code, from_file

    try:
        given = Facts(
            outputs=outputs,
            padding={name: pairs.number(value, "--pad") for name, value in pairs.read(pad, "--pad")},
            task=task,
            labels=labels.read_text().splitlines() if labels else (),
            tokenizer=tokenizer,
            preprocessing={name: pairs.fact(value) for name, value in pairs.read(preprocessing, "--preprocessing")},
            rtol=rtol,
            atol=atol,
            steps=pairs.steps(text=text, image=image, labels=classify),
            programs={
                step: file for step, file in (("preprocess", before), ("postprocess", after)) if file is not None
            },
        )
        asked = Asked(out, given, program, inputs or (), ranges or (), sample or (), samples, seed)
        with _quiet():
            if source.endswith(".pt2") or zipfile.is_zipfile(source):
                done = from_file(Path(source), asked, say)
            else:
                done = from_code(source, asked, say)
    except ExportError as error:
        typer.echo(f"headway export: {error}", err=True)
        raise typer.Exit(1) from None
    _tell(done)


def _generate(source: str, out: Path, dtype: str, draft: str | None) -> None:
    """Export a decoder."""
    os.environ |= {
        "HF_HUB_OFFLINE": "1",
        "TQDM_DISABLE": "1",
    }  # both read when they are imported: fetch and draw nothing
    say = _said()
    say("importing torch and transformers")
    from headway_runtime.export import ExportError
    from headway_runtime.export.generate import DTYPES, export_decoder, load

    if dtype not in DTYPES:
        raise typer.BadParameter(f"{dtype!r}: write {' or '.join(DTYPES)}", param_hint="--dtype")
    try:
        with _quiet():
            say(f"reading {source}")
            decoder = load(source, DTYPES[dtype])
            if draft is not None:
                say(f"reading {draft}")
            drafting = None if draft is None else load(draft, DTYPES[dtype])
            done = export_decoder(decoder.model, decoder.tokenizer, path=out, draft=drafting, say=say)
    except ExportError as error:
        typer.echo(f"headway export: {error}", err=True)
        raise typer.Exit(1) from None
    _tell(done)


def _said() -> "Say":
    """Says on standard error what is being done, with the seconds since now: exports take minutes."""
    began = time.monotonic()
    return lambda text: typer.echo(f"{time.monotonic() - began:6.1f} s  {text}", err=True)


def _tell(done: "Exported") -> None:
    compared = f"{counted(done.runs, 'run')} compared, largest difference {done.largest_difference:.3g}"
    lines = [
        f"{done.path}: written, {done.bytes:,} bytes",
        f"  {done.digest}",
        f"  inspected and loaded as in a pod; {compared if done.runs else 'no run was compared'}",
        f"  {counted(done.samples, 'golden sample')} recorded",
        *(f"  note: {note}" for note in done.notes),
        f"next: headway inspect {done.path}, headway serve {done.path}",
    ]
    typer.echo("\n".join(lines))


def counted(number: int, what: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{number} {what}{'' if number == 1 else 's'}"


@contextmanager
def _quiet() -> Iterator[None]:
    """torch logs pages about a graph that it cannot export; our own message says the same in a line."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
