"""Arguments that several commands share."""

import json
import re
from pathlib import Path
from typing import Annotated, Any

import typer
from headway_api.types import Precision

from headway_runtime.precision import FIELD

_EXPORT = "headway export FILE.py:NAME -o model.pt2 --input … (docs/export.md)"


def exported(path: Path) -> Path:
    """A file that is there. What is still to be exported is refused with the command that does it."""
    if not path.exists():
        raise typer.BadParameter(f"there is no file {path}")
    what = _unexported(path)
    if what is not None:
        raise typer.BadParameter(f"{path} {what}")
    return path


def decoder(path: Path) -> str | None:
    """What is still to be exported with `--task generate`; None: it is nothing of the kind."""
    if path.is_dir() and (path / "config.json").is_file():
        return "a model of Hugging Face"
    return "a GGUF file" if path.suffix.lower() == ".gguf" else None


def precision(text: str) -> Precision:
    """A precision by its name, in any case. Raises BadParameter with those that there are."""
    found = next((each for each in Precision if each.value.lower() == text.lower()), None)
    if found is None:
        raise typer.BadParameter(f"there is no {text}; write {', '.join(Precision)}")
    return found


def precision_option(text: str) -> Any:
    """`--precision`, with its help."""
    return typer.Option(parser=precision, metavar="|".join(Precision), help=text)


def told(error: Exception, asked: Precision | None) -> str:
    """A refusal as this command's user reads it. `asked`: by `--precision`, which is named then."""
    if asked is None:
        return str(error)
    return re.sub(r"\bwrite precision: (?=\w)", "write --precision ", str(error).replace(FIELD, "--precision"))


def _unexported(path: Path) -> str | None:
    """What a file is that is no program yet, and what to do."""
    if (what := decoder(path)) is not None:
        return f"is {what}, and no exported program. Export it first: {_generate(path)}"
    if path.is_dir():
        return "is a folder, and no exported program, .pt2"
    match path.suffix.lower():
        case ".py":
            return (
                "is Python code, and no exported program. Export what it makes first: headway export "
                f"{path}:NAME -o {path.stem}.pt2 --input … (docs/export.md)"
            )
        case ".safetensors":
            what = "holds weights without a program"
        case ".json" if _is_json(path):
            what = "is a JSON file, and no exported program"
        case _:
            return None
    if decoder(path.parent) is None:
        return f"{what}. Export the module that it belongs to: {_EXPORT}"
    return f"{what}. Export its folder, if it generates text: {_generate(path.parent)}; else the module: {_EXPORT}"


def _generate(path: Path) -> str:
    name = path.resolve().name if path.is_dir() else path.stem
    return f"headway export --task generate {path} -o {name}.pt2"


def _is_json(path: Path) -> bool:
    try:
        json.loads(path.read_bytes())
    except (OSError, ValueError):
        return False
    return True


File = Annotated[Path, typer.Argument(callback=exported, help="an exported program, .pt2")]
