"""`headway inspect`."""

from typing import Annotated

import typer

from headway_runtime.cli.arguments import File


def inspect(
    file: File, as_json: Annotated[bool, typer.Option("--json", help="for programs instead of people")] = False
) -> None:
    """Say what a program is, or every reason to refuse it. Nothing of the file is executed."""
    from headway_runtime.prepare.report import describe

    report = describe(file)
    typer.echo(report.to_json() if as_json else report.to_text())
    raise typer.Exit(0 if report.accepted else 1)
