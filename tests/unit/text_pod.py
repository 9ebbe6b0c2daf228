"""A pod that generates text, as a real process, for tests of what it speaks."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.unit.generator_desk import prepared
from tests.unit.pod_process import PodProcess, pod


@contextmanager
def text_pod(folder: Path) -> Iterator[PodProcess]:
    """A pod of the tiny decoder, ready, in whose line a request may wait for long."""
    generation = {"cacheBytes": "2Mi", "maxLength": 500}
    with pod(folder, prepared(folder), generation=generation) as started:
        started.wait_for_phase(seconds=120)
        started.apply_knobs({"queue": {"timeout": "30s"}})
        yield started
