"""A pod on a laptop: the same two processes as in the cluster, `prepare` and then `serve`, with their files in a
folder.

A manifest, when given, is the ModelDeployment that would be applied: its batching fields rule here as they would
there. Its artifact is replaced by the local file.
"""

import os
import re
import secrets
from pathlib import Path
from typing import Any

from headway_api import names
from headway_api.podconfig import ColdArtifact, ColdBatching, ColdConfig, ColdGeneration, ColdVerification, Knobs
from headway_api.podtemplate import Sandbox
from headway_api.types import Device, DeviceKind, Precision, Spec
from pydantic import ValidationError

from headway_runtime.local_ports import Ports
from headway_runtime.local_process import Child, Interrupted, LocalError, Say
from headway_runtime.local_rules import broken_rule

__all__ = [
    "Child",
    "Interrupted",
    "LocalError",
    "Ports",
    "environment",
    "prepare",
    "read_manifest",
    "serve",
    "write_files",
]

_KEPT = frozenset({"PATH", "LD_LIBRARY_PATH", "HOME", "USER", "TMPDIR", "LANG", "LC_ALL", "LC_CTYPE", "TZ"})
_NATIVE = (
    "this is a native package of `headway compile`, which only a cluster that trusts its builder's key runs; serve the "
    "plain .pt2 here from which it was compiled (docs/compile.md)"
)
_KEPT_PREFIXES = ("PYTHON", "OMP_", "GOMP_", "KMP_", "MKL_", "TORCH_", "CUDA_", "NVIDIA_")


def read_manifest(path: Path) -> tuple[str, Spec]:
    """Name and spec of a ModelDeployment in a YAML file. Raises LocalError."""
    import yaml

    try:
        documents = [d for d in yaml.safe_load_all(path.read_text()) if isinstance(d, dict)]
        document = next(d for d in documents if d.get("kind") == names.KIND)
        spec = Spec.model_validate(document["spec"])
        if (broken := broken_rule(spec)) is not None:
            raise LocalError(f"{path}: {broken}")
        return str(document["metadata"]["name"]), spec
    except StopIteration:
        raise LocalError(f"{path}: no document of kind {names.KIND}") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        said = "there is no such field" if first["type"] == "extra_forbidden" else first["msg"]
        raise LocalError(f"{path}: spec.{'.'.join(map(str, first['loc']))}: {said}") from None
    except (OSError, yaml.YAMLError, KeyError, TypeError) as error:
        raise LocalError(f"{path}: {type(error).__name__}: {error}") from None


def write_files(
    folder: Path, artifact: Path, manifest: tuple[str, Spec] | None, *, precision: Precision | None = None
) -> ColdConfig:
    """Write the two files that a pod has mounted; returns the cold configuration. `precision`: rather than the
    manifest's. The revision is this call's alone, so that no other process's report is taken for its pod's.
    """
    name, spec = manifest or (_name(artifact), None)
    config = ColdConfig(
        model=name,
        namespace="local",
        revision=f"local-{secrets.token_hex(4)}",
        artifact=ColdArtifact(uri=artifact.resolve().as_uri(), program=spec.artifact.program if spec else None),
        device=spec.device if spec else Device(kind=DeviceKind.CPU),
        precision=precision or (spec.precision if spec else None) or Precision.EXPORTED,
        batching=_batching(spec),
        generation=_generation(spec),
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


def _generation(spec: Spec | None) -> ColdGeneration:
    if spec is None or spec.generation is None:
        return ColdGeneration()
    return ColdGeneration.model_validate(spec.generation.model_dump(exclude_none=True))


def _verification(spec: Spec | None) -> ColdVerification:
    if spec is None or spec.verification is None:
        return ColdVerification()
    return ColdVerification.model_validate(spec.verification.model_dump(exclude_none=True))


def prepare(folder: Path, digest: str | None, *, say: Say) -> None:
    """Run the prepare container's process. Raises LocalError with its refusal, Interrupted when a signal ended it."""
    (folder / names.DIGEST_KEY).write_text(digest or "")
    files = {
        "--config": folder / names.CONFIG_KEY,
        "--digest-file": folder / names.DIGEST_KEY,
        "--output": folder / "model",
        "--termination-log": folder / "termination-log",
    }
    with Child("headway_runtime.prepare", files, folder, say=say) as child:
        try:
            child.wait()
        except LocalError as error:
            raise LocalError(_NATIVE) if "rule native.unsigned" in str(error) else error from None
        if child.interrupted:
            raise Interrupted


def serve(folder: Path, ports: Ports, *, say: Say, alone: bool = False) -> Child:
    """Start the serve container's process, which takes over what listens; enter what is returned, and `wait` for it.
    `alone`: only this process asks it.
    """
    files: dict[str, Any] = {
        "--config": folder / names.CONFIG_KEY,
        "--knobs": folder / names.KNOBS_KEY,
        "--model": folder / "model",
        "--termination-log": folder / "termination-log",
        "--scratch": folder / "scratch",
        "--sockets": ",".join(str(listener.fileno()) for listener in ports.listeners),
        "--ends-with": os.getpid(),
    }
    return Child(
        "headway_runtime.serve",
        files,
        folder,
        say=say,
        environment=environment(),
        alone=alone,
        listeners=ports.listeners,
    )


def environment() -> dict[str, str]:
    """What the serving process is told of this machine: what Python and torch look for, and none of the user's secrets,
    which a program could read and answer with.
    """
    return {name: value for name, value in os.environ.items() if name in _KEPT or name.startswith(_KEPT_PREFIXES)}


def _name(artifact: Path) -> str:
    """A model name from a file name: lower case, letters, digits and hyphens."""
    name = re.sub(r"[^a-z0-9]+", "-", artifact.stem.lower()).strip("-")[: names.MAX_NAME_LENGTH].rstrip("-")
    return name if name and name[0].isalpha() else f"model-{name}".rstrip("-")
