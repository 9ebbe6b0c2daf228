"""Where the commands have the passphrase of a private key from: the environment, or the person at the terminal."""

import os
import sys
from enum import Enum

import typer

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
