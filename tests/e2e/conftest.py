"""Real pods on a real node: the cluster of HEADWAY_KUBECONFIG, or the embedded one.

The embedded cluster is started for the session unless it is up already, in which case it is used and left up.
"""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from onenode import instance

from tests.e2e.cluster_access import StoryError
from tests.e2e.platform import INSTANCE, Platform, open_platform


@pytest.fixture(scope="session")
def platform() -> Iterator[Platform]:
    """A cluster with the chart of this working tree installed."""
    with ExitStack() as ending:
        was_up = instance.find(INSTANCE) is not None
        try:
            opened = open_platform(print)
        except StoryError as error:
            pytest.skip(f"no cluster with a node: {error}")
        if opened.embedded and not was_up:
            ending.callback(instance.down, INSTANCE)
        opened.install(print)
        yield opened
