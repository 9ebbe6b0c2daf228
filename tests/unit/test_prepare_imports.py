"""Preparing an artifact needs neither torch nor numpy, whichever of its modules is imported."""

import subprocess
import sys

CHECK = """
import importlib, pkgutil, sys
import headway_runtime.prepare as package
names = [m.name for m in pkgutil.walk_packages(package.__path__, package.__name__ + ".")]
for name in names:
    importlib.import_module(name)
assert len(names) > 20, names
unwanted = {"torch", "numpy", "fastapi", "uvicorn", "sympy"}
print(",".join(sorted(unwanted.intersection(m.partition(".")[0] for m in sys.modules))))
"""


def test_preparing_imports_neither_torch_nor_numpy() -> None:
    done = subprocess.run([sys.executable, "-c", CHECK], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
