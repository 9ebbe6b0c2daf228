"""The CRD on the session's API server, a namespace, and an operator for it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from headway_api import crd
from kubernetes import config, utils

from tests.cluster.control.kube import Kube
from tests.cluster.control.process import OperatorProcess


@pytest.fixture(scope="session")
def served(api_server: Path) -> Path:
    """The kubeconfig of an API server that serves ModelDeployments."""
    with config.new_client_from_config(str(api_server)) as administrator:
        utils.create_from_yaml(administrator, str(crd.ROOT / crd.CRD_FILE), apply=True)
    return api_server


@pytest.fixture
def kube(served: Path, namespace: str) -> Iterator[Kube]:
    """The test's own namespace."""
    connected = Kube(served, namespace)
    yield connected
    connected.close()


@pytest.fixture
def operator(served: Path, namespace: str, tmp_path: Path) -> Iterator[OperatorProcess]:
    """An operator for the namespace, not started yet."""
    process = OperatorProcess(served, namespace, tmp_path / "operator.log")
    yield process
    process.end()
    print(process.tail())  # pytest shows it with a failure


@pytest.fixture
def running(operator: OperatorProcess) -> OperatorProcess:
    """An operator that works."""
    operator.start()
    operator.wait_until_healthy()
    return operator
