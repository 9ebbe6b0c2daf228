"""A control plane alone: what the other tests of this folder stand on."""

import os
import time
from pathlib import Path

import pytest
from kubernetes import client, config
from onenode.build import KUBERNETES

pytestmark = pytest.mark.skipif("HEADWAY_KUBECONFIG" in os.environ, reason="HEADWAY_KUBECONFIG names another cluster")


def test_the_api_server_is_the_pinned_version(api_server: Path) -> None:
    with config.new_client_from_config(str(api_server)) as api:
        assert client.VersionApi(api).get_code().git_version == f"v{KUBERNETES}"


def test_a_new_namespace_gets_its_default_service_account(api_server: Path, namespace: str) -> None:
    with config.new_client_from_config(str(api_server)) as api:
        core = client.CoreV1Api(api)
        deadline = time.monotonic() + 20
        while not core.list_namespaced_service_account(namespace).items:  # made by the controller manager
            assert time.monotonic() < deadline
            time.sleep(0.05)
