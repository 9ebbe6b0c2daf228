"""`headway inspect`."""

from typing import Annotated

import typer

from headway_runtime.cli.arguments import File
from headway_runtime.cli.verify import BuilderKeys, Keys


def inspect(
    file: File,
    as_json: Annotated[bool, typer.Option("--json", help="for programs: docs/reference/inspect.md")] = False,
    key: Keys = None,
    builder_key: BuilderKeys = None,
) -> None:
    """Say what a file is, or why a pod refuses it. Nothing of the file is executed.

    With --key, FILE.sig must be there and by that key, as in a pod whose ModelDeployment requires a signature.
    Exit code 0: accepted. 1: refused. 2: the command was not understood.
    """
    from headway_runtime.prepare.errors import PrepareError
    from headway_runtime.prepare.report import describe
    from headway_runtime.prepare.signatures.keys import read_public_key
    from headway_runtime.prepare.signatures.trust import Trust

    try:
        public, builders = (tuple(map(read_public_key, keys or ())) for keys in (key, builder_key))
    except PrepareError as error:
        raise typer.BadParameter(str(error)) from None
    report = describe(file, Trust(bool(public or builders), public, builders))
    typer.echo(report.to_json() if as_json else report.to_text())
    raise typer.Exit(0 if report.accepted else 1)
