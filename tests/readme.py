"""The README as tests see it: its code blocks by language, and the commands in them."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    """The fenced blocks of a language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.DOTALL | re.MULTILINE)


def commands(program: str) -> list[str]:
    """Every one-line command of a program in a shell block, without its comment."""
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    return [line.split("  #")[0].strip() for line in lines if line.startswith(f"{program} ")]


def inference_body() -> str:
    """The JSON that the README's curl sends."""
    (found,) = re.findall(r"curl .*?-d '(.*?)'$", README, flags=re.DOTALL | re.MULTILINE)
    return str(found)
