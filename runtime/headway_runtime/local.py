"""A pod on a laptop: the same two processes as in the cluster, `prepare` and then `serve`, with their files in a
folder.

A manifest, when given, is the ModelDeployment that would be applied: its batching fields rule here as they would
there. Its artifact is replaced by the local file.
"""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from headway_api import names
from headway_api.podconfig import ColdArtifact, ColdBatching, ColdConfig, ColdVerification, Knobs, Termination
from headway_api.podtemplate import Sandbox
from headway_api.types import Device, DeviceKind, Spec
from pydantic import ValidationError

from headway_runtime.errors import ServeError

REVISION = "local"

_KEPT = frozenset({"PATH", "LD_LIBRARY_PATH", "HOME", "USER", "TMPDIR", "LANG", "LC_ALL", "LC_CTYPE", "TZ"})
_KEPT_PREFIXES = ("PYTHON", "OMP_", "GOMP_", "KMP_", "MKL_", "TORCH_", "CUDA_", "NVIDIA_")


class LocalError(ServeError):
    """The file or the manifest cannot be used; the message says why."""


def read_manifest(path: Path) -> tuple[str, Spec]:
    """Name and spec of a ModelDeployment in a YAML file. Raises LocalError."""
    import yaml

    try:
        documents = [d for d in yaml.safe_load_all(path.read_text()) if isinstance(d, dict)]
        document = next(d for d in documents if d.get("kind") == names.KIND)
        return str(document["metadata"]["name"]), Spec.model_validate(document["spec"])
    except StopIteration:
        raise LocalError(f"{path}: no document of kind {names.KIND}") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise LocalError(f"{path}: spec.{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    except (OSError, yaml.YAMLError, KeyError, TypeError) as error:
        raise LocalError(f"{path}: {type(error).__name__}: {error}") from None


def write_files(folder: Path, artifact: Path, manifest: tuple[str, Spec] | None) -> ColdConfig:
    """Write the two files that a pod has mounted; returns the cold configuration."""
    name, spec = manifest or (_name(artifact), None)
    config = ColdConfig(
        model=name,
        namespace="local",
        revision=REVISION,
        artifact=ColdArtifact(uri=artifact.resolve().as_uri(), program=spec.artifact.program if spec else None),
        device=spec.device if spec else Device(kind=DeviceKind.CPU),
        batching=_batching(spec),
        verification=_verification(spec),
        sandbox=(spec.template and spec.template.sandbox if spec else None) or Sandbox.BEST_EFFORT,
    )
    (folder / names.CONFIG_KEY).write_text(config.to_json())
    (folder / names.KNOBS_KEY).write_text((Knobs.of(spec) if spec else Knobs()).to_json())
    return config


def _batching(spec: Spec | None) -> ColdBatching:
    if spec is None or spec.batching is None:
        return ColdBatching()
    return ColdBatching.model_validate(spec.batching.model_dump(exclude_none=True))


def _verification(spec: Spec | None) -> ColdVerification:
    if spec is None or spec.verification is None:
        return ColdVerification()
    return ColdVerification.model_validate(spec.verification.model_dump(exclude_none=True))


def prepare(folder: Path, digest: str | None) -> None:
    """Run the prepare container's process. Raises LocalError with its refusal."""
    (folder / names.DIGEST_KEY).write_text(digest or "")
    files = {
        "--config": folder / names.CONFIG_KEY,
        "--digest-file": folder / names.DIGEST_KEY,
        "--output": folder / "model",
        "--termination-log": folder / "termination-log",
    }
    _run("headway_runtime.prepare", files, folder)


def serve(folder: Path, *, host: str, port: int, admin_port: int) -> None:
    """Run the serve container's process until it is told to end. Raises LocalError with its refusal."""
    files: dict[str, Any] = {
        "--config": folder / names.CONFIG_KEY,
        "--knobs": folder / names.KNOBS_KEY,
        "--model": folder / "model",
        "--termination-log": folder / "termination-log",
        "--scratch": folder / "scratch",
        "--host": host,
        "--port": port,
        "--admin-port": admin_port,
    }
    _run("headway_runtime.serve", files, folder, environment())


def environment() -> dict[str, str]:
    """What the serving process is told of this machine: what Python and torch look for, and none of the user's secrets,
    which a program could read and answer with.
    """
    return {name: value for name, value in os.environ.items() if name in _KEPT or name.startswith(_KEPT_PREFIXES)}


def _run(module: str, options: dict[str, Any], folder: Path, environment: dict[str, str] | None = None) -> None:
    arguments: Sequence[str] = [str(part) for pair in options.items() for part in pair]
    (folder / "termination-log").unlink(missing_ok=True)  # each process leaves its own reason
    # -P: no module from the folder that the user is in, which may be somebody else's, with the model.
    process = subprocess.Popen([sys.executable, "-P", "-m", module, *arguments], env=environment)

    def pass_on(number: int, _: FrameType | None) -> None:
        if number != signal.SIGINT:  # the terminal has sent that one to both
            process.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        code = process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if code != 0:
        raise LocalError(_refusal(folder / "termination-log", f"{module} ended with code {code}"))


def _refusal(file: Path, otherwise: str) -> str:
    try:
        refusal = Termination.model_validate(json.loads(file.read_text()))
    except (OSError, ValueError):
        return otherwise
    return f"{refusal.condition or 'Ready'}=False/{refusal.reason}: {refusal.message}"


def _name(artifact: Path) -> str:
    """A model name from a file name: lower case, letters, digits and hyphens."""
    name = re.sub(r"[^a-z0-9]+", "-", artifact.stem.lower()).strip("-")[: names.MAX_NAME_LENGTH].rstrip("-")
    return name if name and name[0].isalpha() else f"model-{name}".rstrip("-")
