"""Arguments that several commands share."""

from pathlib import Path
from typing import Annotated

import typer


def exported(path: Path) -> Path:
    """A file that is there. What is still to be exported is refused with the command that does it."""
    folder = path.is_dir()
    if not path.exists():
        raise typer.BadParameter(f"there is no file {path}")
    if path.suffix.lower() == ".gguf" or (folder and (path / "config.json").is_file()):
        name = path.resolve().name if folder else path.stem
        what = "a model of Hugging Face" if folder else "a GGUF file"
        raise typer.BadParameter(
            f"{path} is {what}, and no exported program. Export it first: headway export --task generate {path} "
            f"-o {name}.pt2"
        )
    if folder:
        raise typer.BadParameter(f"{path} is a folder, and no exported program, .pt2")
    return path


File = Annotated[Path, typer.Argument(callback=exported, help="an exported program, .pt2")]
