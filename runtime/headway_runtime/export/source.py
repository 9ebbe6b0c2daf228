"""The author's own code: ``module:name`` or ``file.py:name``, imported and called. It is executed, as any script is."""

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from headway_runtime.export.errors import ExportError

FORM = "write MODULE:NAME or FILE.py:NAME, as in model.py:make_model"


def load(target: str) -> torch.nn.Module:
    """The module that a target names: itself, or what it returns when called without arguments. Raises ExportError."""
    found = called(target)
    if not isinstance(found, torch.nn.Module):
        name = target.rpartition(":")[2]
        raise ExportError(f"{name}() returned a {type(found).__name__}, and must return a torch.nn.Module")
    return found


def called(target: str) -> Any:
    """The module that a target names, or whatever its function returns. Raises ExportError."""
    where, colon, name = target.rpartition(":")
    if not colon or not where or not name.isidentifier():
        raise ExportError(f"{target!r} names no model: {FORM}")
    module = _import(where)
    if not hasattr(module, name):
        there = ", ".join(n for n, v in vars(module).items() if callable(v) and not n.startswith("_"))
        raise ExportError(f"{where} has no {name!r}; it has {there or 'nothing that can be called'}")
    found = getattr(module, name)
    if isinstance(found, torch.nn.Module):
        return found
    if not callable(found):
        raise ExportError(
            f"{target} is a {type(found).__name__}; name a torch.nn.Module, or a function that returns one"
        )
    try:
        return found()
    except Exception as error:
        raise ExportError(f"{name}() failed: {type(error).__name__}: {error}") from error


def _import(where: str) -> ModuleType:
    path = Path(where)
    folder = path.resolve().parent if where.endswith(".py") else Path.cwd()
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))  # as Python does for a script: its neighbours can be imported
    try:
        if not where.endswith(".py"):
            return importlib.import_module(where)
        if not path.is_file():
            raise ExportError(f"there is no file {where}")
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
        return module
    except ExportError:
        raise
    except Exception as error:
        raise ExportError(f"{where} cannot be imported: {type(error).__name__}: {error}") from error
