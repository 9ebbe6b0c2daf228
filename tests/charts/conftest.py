"""Helm for the tests of this folder: the one that the embedded cluster's build makes."""

from pathlib import Path

import pytest
from onenode import build
from onenode.errors import MissingCapabilityError


@pytest.fixture(scope="session")
def helm_program() -> Path:
    """Path of helm, built on first use."""
    (program,) = (tool for tool in build.TOOLS if tool.name == "helm")
    try:
        build.build((program,))
    except MissingCapabilityError as missing:
        pytest.skip(f"no helm: {missing}")
    return program.path()
