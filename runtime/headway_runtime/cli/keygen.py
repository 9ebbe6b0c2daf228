"""`headway keygen`."""

import os
from pathlib import Path
from typing import Annotated

import typer

from headway_runtime.cli.passphrase import Ask, passphrase


def keygen(
    file: Annotated[Path, typer.Argument(help="the private key; the public one is written to FILE.pub")],
    encrypt: Annotated[
        bool,
        typer.Option("--encrypt", help="protect the private key: HEADWAY_PASSPHRASE, or asked for"),
    ] = False,
) -> None:
    """Make a pair of Ed25519 keys. FILE signs, and stays where artifacts are signed; FILE.pub goes into the Secret that
    a ModelDeployment names in artifact.trust.publicKeys."""
    from headway_runtime.prepare.signatures.keys import generate

    public = file.with_name(f"{file.name}.pub")
    for path in (file, public):
        if path.exists() or path.is_symlink():
            typer.echo(f"headway: {path} exists and is not overwritten; give another name", err=True)
            raise typer.Exit(1)
    key = generate()
    secret = passphrase(Ask.TWICE) if encrypt else None
    try:
        _write(file, key.private_pem(secret), 0o600)
        _write(public, key.public_pem(), 0o644)
    except OSError as e:
        typer.echo(f"headway: {e.filename}: {e.strerror}", err=True)
        raise typer.Exit(1) from None
    typer.echo(f"{file}: private key; whoever has it can sign")
    typer.echo(f"{public}: public key, id {key.keyid}")


def _write(path: Path, data: bytes, mode: int) -> None:
    """A new file, and readable by others from its first moment only if ``mode`` says so."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode), "wb") as out:
        out.write(data)
