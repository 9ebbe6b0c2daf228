"""Arguments that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

File = Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="an exported program, .pt2")]
