"""Install requirements into the virtual environment of an image; torch without a GPU's libraries.

    python install.py ENVIRONMENT REQUIREMENTS CONSTRAINTS [CPU_INDEX]

Runs in a build stage, by a Python that has pip. With CPU_INDEX, the index of PyTorch's CPU wheels, torch comes from
there. Without, it is the wheel of the ordinary index, a CUDA build, which is slimmed to what a CPU needs.
"""

import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

import cpu_only

GPU = re.compile(r"(nvidia|cuda|triton)\b")  # torch's own requirements that a CPU has no use for
REAL = ("cudart", "cupti")  # NVIDIA's two small libraries that torch calls even without a GPU


def main() -> None:
    environment, requirements, constraints, *index = sys.argv[1:]
    python = Path(environment, "bin/python")
    site = next(Path(environment, "lib").glob("python3.*/site-packages"))
    wanted = Path(requirements).read_text().split("\n")
    torch = [line for line in wanted if re.match(r"torch\b", line)]

    def pip(*args: str) -> None:
        options = ("--constraint", constraints, "--no-compile")
        subprocess.run([sys.executable, "-m", "pip", "--python", python, "install", *options, *args], check=True)

    pip(*(line for line in wanted if line and line not in torch))
    if torch:
        pip("--no-deps", *torch, *(["--index-url", index[0]] if index and index[0] else []))
        asked = asked_by(site, "torch")
        pip(*(line for line in asked if not GPU.match(line)))
        if toolkit := [line for line in asked if line.startswith("cuda-toolkit")]:
            slim(site, toolkit[0], pip)
    subprocess.run([python, "-m", "compileall", "-q", "-j", "0", site], check=False)  # some ship code of other Pythons


def asked_by(site: Path, name: str) -> list[str]:
    """The requirements of an installed distribution that has no extra, without their markers."""
    found = next(iter(importlib.metadata.distributions(name=name, path=[str(site)])))
    return [line.split(";")[0].strip() for line in found.requires or () if "extra ==" not in line]


def slim(site: Path, toolkit: str, pip) -> None:  # type: ignore[no-untyped-def]
    """Install the two real libraries in the versions that torch's toolkit names; stubs for the others."""
    pip("--no-deps", re.sub(r"\[.*\]", "", toolkit))
    found = next(iter(importlib.metadata.distributions(name="cuda-toolkit", path=[str(site)])))
    for line in found.requires or ():
        requirement, _, marker = line.partition(";")
        if any(f'extra == "{name}"' in marker.replace("'", '"') for name in REAL):
            pip("--no-deps", requirement.strip())
    cpu_only.main(site)


if __name__ == "__main__":
    main()
