"""A real API server for the tests of this folder: any cluster in HEADWAY_KUBECONFIG, or one of our own.

Our own is a control plane alone (no node, so no pod ever runs), needs no root, starts in about 3 s and ends
with the test process, however that ends. The first use on a machine compiles it (5 minutes on 2 cores);
`make cluster` or `python -m onenode build`, run before, shows that progress.
"""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes import client, config
from onenode import instance
from onenode.errors import MissingCapabilityError


@pytest.fixture(scope="session")
def api_server() -> Iterator[Path]:
    """The kubeconfig of a cluster's administrator; one cluster for the session, shared by its tests."""
    if given := os.environ.get("HEADWAY_KUBECONFIG"):
        yield Path(given)
        return
    try:
        layout = instance.up_for_this_process()
    except MissingCapabilityError as missing:
        pytest.skip(f"no API server: {missing}")
    yield layout.kubeconfig
    instance.down(layout.instance)


@pytest.fixture
def namespace(api_server: Path) -> Iterator[str]:
    """A namespace of the test's own, deleted (without waiting for its end) afterwards."""
    core = client.CoreV1Api(config.new_client_from_config(str(api_server)))
    name = f"test-{uuid.uuid4().hex[:10]}"
    core.create_namespace({"metadata": {"name": name, "labels": {"headway-test": "true"}}})
    yield name
    core.delete_namespace(name)
    core.api_client.close()
