"""The chart, rendered by Helm as a user's machine would."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

Object = dict[str, Any]

CHART = Path(__file__).resolve().parents[2] / "charts" / "headway"
NAMESPACE = "headway-system"


class HelmError(Exception):
    """Helm refused; its own words."""


def helm(program: Path, *arguments: str, values: Mapping[str, Any] | None = None) -> str:
    """Standard output of a helm command. Raises HelmError."""
    given = ["--values", "-"] if values is not None else []
    done = subprocess.run(
        [program, *arguments, *given], input=json.dumps(values or {}), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise HelmError(done.stderr)
    return done.stdout


def render(program: Path, values: Mapping[str, Any] | None = None, *, release: str = "headway") -> list[Object]:
    """Every object of a release. Raises HelmError when the chart refuses the values."""
    text = helm(program, "template", release, str(CHART), "--namespace", NAMESPACE, values=values or {})
    return [obj for obj in yaml.safe_load_all(text) if obj]


def of_kind(objects: list[Object], kind: str) -> list[Object]:
    """The objects of a kind."""
    return [obj for obj in objects if obj["kind"] == kind]


def only(objects: list[Object], kind: str) -> Object:
    """The one object of a kind."""
    (found,) = of_kind(objects, kind)
    return found
