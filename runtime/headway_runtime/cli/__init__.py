"""The command `headway`: what one does with an exported program before, and beside, a cluster. One file a command."""

import sys
from importlib.metadata import version
from typing import Annotated

try:
    import typer

    from headway_runtime.cli.bench import bench
    from headway_runtime.cli.compile import compile_program
    from headway_runtime.cli.export import export
    from headway_runtime.cli.inspect import inspect
    from headway_runtime.cli.keygen import keygen
    from headway_runtime.cli.serve import serve
    from headway_runtime.cli.sign import sign
    from headway_runtime.cli.verify import verify
except KeyboardInterrupt:  # nothing has begun: who ends it in its first half second needs no traceback of an import
    sys.exit(130)

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode="markdown")
for command in (export, inspect, serve, bench, keygen, sign, verify):
    app.command()(command)
app.command("compile")(compile_program)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"headway {version('headway')}")
        raise typer.Exit


@app.callback()
def options(
    _: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="say the version")] = False,
) -> None:
    """Work with exported PyTorch programs (.pt2)."""


def main() -> None:
    """Entry point of the console script."""
    app()
