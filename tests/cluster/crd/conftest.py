"""The CRD of the repository on the API server of the session, and two ways to talk to it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from headway_api import crd
from kubernetes import config
from onenode import build

from tests.cluster.crd.access import KUBECTL, Kubectl, Models


@pytest.fixture(scope="session")
def installed_crd(api_server: Path) -> Path:
    """The kubeconfig of a cluster that has the CRD."""
    build.build((KUBECTL,))
    kubectl = Kubectl(KUBECTL.path(), api_server, "default")
    kubectl("apply", "--server-side", "--force-conflicts", "-f", str(crd.ROOT / crd.CRD_FILE))
    kubectl("wait", "--for=condition=Established", "--timeout=30s", "-f", str(crd.ROOT / crd.CRD_FILE))
    return api_server


@pytest.fixture
def kubectl(installed_crd: Path, namespace: str) -> Kubectl:
    return Kubectl(KUBECTL.path(), installed_crd, namespace)


@pytest.fixture
def models(installed_crd: Path, namespace: str) -> Iterator[Models]:
    with config.new_client_from_config(str(installed_crd)) as api:
        yield Models(api, namespace)
