"""Honest programs are exported once per session; everything hostile is made from them."""

import logging
import warnings
from pathlib import Path

import pytest
import torch

from tests.hostile import archives, zoo


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)
    logging.getLogger("torch").setLevel(logging.ERROR)


@pytest.fixture(scope="session")
def zoo_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("zoo")


@pytest.fixture(scope="session")
def exported(zoo_directory: Path):  # type: ignore[no-untyped-def]
    """Function from a case's name to its `.pt2`, exported on first use."""

    def export(name: str) -> Path:
        path = zoo_directory / f"{name}.pt2"
        if not path.exists():
            case = zoo.PROGRAMS.get(name) or zoo.REFUSED[name][0]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                case.export(path)
        return path

    return export


@pytest.fixture(scope="session")
def honest(exported) -> archives.Entries:  # type: ignore[no-untyped-def]
    """The entries of an honest MLP, its program called `model`."""
    return archives.read(exported("mlp"))
