"""`headway verify`."""

from pathlib import Path
from typing import Annotated

import typer

from headway_runtime.cli.arguments import File

Keys = Annotated[list[Path] | None, typer.Option(exists=True, dir_okay=False, help="a public key (PEM); any may match")]
BuilderKeys = Annotated[
    list[Path] | None, typer.Option(exists=True, dir_okay=False, help="a public key that may sign compiled programs")
]


def verify(
    file: File,
    key: Keys = None,
    builder_key: BuilderKeys = None,
    signature: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="the signature; otherwise FILE.sig")
    ] = None,
) -> None:
    """Say who signed a file and what the signature says of it. Exit code 1 when no given key vouches for it."""
    from headway_runtime.prepare.errors import PrepareError
    from headway_runtime.prepare.signatures import verify as signatures
    from headway_runtime.prepare.signatures.keys import read_public_key
    from headway_runtime.prepare.signatures.trust import Trust

    if not key and not builder_key:
        raise typer.BadParameter("give at least one --key or --builder-key")
    path = signature or signatures.signature_file(file)
    try:
        trust = Trust(True, tuple(map(read_public_key, key or ())), tuple(map(read_public_key, builder_key or ())))
        text = signatures.find_signature(path)
        signed = signatures.verify(text, digest=signatures.file_digest(file), trust=trust)
    except PrepareError as e:
        typer.echo(f"headway: {file}: {e.reason}: {e}", err=True)
        raise typer.Exit(1) from None
    except OSError as e:
        typer.echo(f"headway: {e.filename}: {e.strerror}", err=True)
        raise typer.Exit(1) from None
    said = signed.statement
    lines = {
        "key": f"{signed.keyid}{' (a builder)' if signed.builder else ''}",
        "name": said.name,
        "digest": said.digest,
        "torch": said.torch or "not said",
        "native": f"compiled for {said.target} from {said.source}" if said.native else "no",
    }
    typer.echo(f"{file}: signed by {signed.key}")
    for name, value in lines.items():
        typer.echo(f"  {name}: {value}")
