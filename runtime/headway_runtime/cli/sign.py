"""`headway sign`."""

from pathlib import Path
from typing import Annotated

import typer

from headway_runtime.cli.arguments import File
from headway_runtime.cli.passphrase import private_keys


def sign(
    file: File,
    key: Annotated[
        list[Path],
        typer.Option(exists=True, dir_okay=False, help="an Ed25519 private key; give two while one replaces the other"),
    ],
    output: Annotated[Path | None, typer.Option(help="where the signature goes; otherwise to FILE.sig")] = None,
    native: Annotated[
        bool, typer.Option("--native", help="vouch for a package of `headway compile`, as its builder")
    ] = False,
) -> None:
    """Inspect a program and sign that it is yours: what it is and which torch exported it. A file that a pod would
    refuse is not signed. Publish FILE.sig beside FILE.

    With --native, FILE is what `headway compile` wrote without a key: so the key need not be where programs are
    compiled and tried.
    """
    from headway_runtime.prepare.errors import PrepareError
    from headway_runtime.prepare.isolate import inspect_isolated
    from headway_runtime.prepare.signatures.verify import sign_statement, signature_file

    target = output or signature_file(file)
    try:
        keys = private_keys(key)
        before = _identity(file)
        if native:
            from headway_runtime.native.unpack import examine

            found, _ = examine(file)
            said = {"torch": found.torch, "target": found.target, "source": found.source}
            text = sign_statement(file, *keys, native=True, **said)
        else:
            versions = {program.torch for program in inspect_isolated(file).programs.values()}
            if len(versions) != 1:
                _fail(f"{file}: its programs are from torch {' and '.join(sorted(versions))}; sign a file from one")
            text = sign_statement(file, *keys, torch=versions.pop())
        if _identity(file) != before:
            _fail(f"{file} changed while it was signed; try again")
        target.write_bytes(text)
    except PrepareError as e:
        _fail(f"{file}: not signed ({e.reason})\n  {e}" if e.reason != "InvalidKeys" else str(e))
    except OSError as e:
        _fail(f"{e.filename}: {e.strerror}")
    for signer in keys:
        typer.echo(f"{target}: signed by {signer.keyid}")


def _identity(file: Path) -> tuple[int, ...]:
    """Which file it is, and in which state: what was inspected must be what is signed."""
    status = file.stat()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _fail(message: str) -> None:
    typer.echo(f"headway: {message}", err=True)
    raise typer.Exit(1)
