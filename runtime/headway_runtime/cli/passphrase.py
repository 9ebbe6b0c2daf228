"""Where the commands have private keys and their passphrase from: files, and the environment or the person at the
terminal.
"""

import os
import sys
from collections.abc import Iterable
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from headway_runtime.prepare.signatures.keys import PrivateKey

VARIABLE = "HEADWAY_PASSPHRASE"


class Ask(Enum):
    """Once for a key that exists, twice for a new one."""

    ONCE = False
    TWICE = True


def passphrase(ask: Ask) -> bytes:
    """Never empty. Exits with code 1 where nobody can be asked."""
    if given := os.environ.get(VARIABLE):
        return given.encode()
    if not sys.stdin.isatty():
        typer.echo(f"headway: an encrypted key needs a passphrase: set {VARIABLE}", err=True)
        raise typer.Exit(1)
    return str(typer.prompt("Passphrase", hide_input=True, confirmation_prompt=ask.value)).encode()


def private_keys(paths: Iterable[Path]) -> "list[PrivateKey]":
    """The keys in these files; the passphrase is asked for where one is encrypted. Raises KeyFileError as
    `read_private_key` does.
    """
    from headway_runtime.prepare.signatures.keys import PassphraseNeeded, read_private_key

    keys = []
    for path in paths:
        try:
            keys.append(read_private_key(path))
        except PassphraseNeeded:
            keys.append(read_private_key(path, passphrase=passphrase(Ask.ONCE)))
    return keys
