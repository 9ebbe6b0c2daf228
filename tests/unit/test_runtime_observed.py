"""A real pod: what it keeps, what it counts, and what it says of drift and of its load."""

import asyncio
import time
from collections.abc import Iterator

import httpx
import pytest
import torch
from headway_api.names import PRIORITY_HEADER
from headway_runtime.export import Size, export_model
from prometheus_client.parser import text_string_to_metric_families

from tests.unit.pod_process import PodProcess, pod, question, until
from tests.unit.small_models import Encoder, prepare

BATCHING = {
    "shapeBuckets": {"batch": [1, 4, 8], "sequence": [4, 16]},
    "padding": "Trusted",
}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PodProcess]:
    folder = tmp_path_factory.mktemp("encoder")
    sizes = {0: Size("batch", 1, 64), 1: Size("sequence", 1, 128)}
    export_model(
        Encoder().eval(),
        {"ids": torch.tensor([[1, 2, 3], [4, 3, 2]]), "mask": torch.ones(2, 3, dtype=torch.int64)},
        path=folder / "model.pt2",
        dynamic_shapes={"ids": sizes, "mask": sizes},
    )
    prepared = prepare(folder / "model.pt2", folder / "model")
    with pod(tmp_path_factory.mktemp("pod"), prepared, batching=BATCHING) as started:
        started.wait_for_phase()
        yield started


@pytest.fixture
def server(running: PodProcess) -> PodProcess:
    running.apply_knobs({"maxWait": "0ms"})
    return running


def counted(server: PodProcess) -> dict[tuple[str, ...], float]:
    """Every sample, by its name and the values of its labels, in the order of the labels' names."""
    families = text_string_to_metric_families(server.admin("/metrics").text)
    return {
        (s.name, *(s.labels[name] for name in sorted(s.labels))): s.value for family in families for s in family.samples
    }


def grown(before: dict[tuple[str, ...], float], server: PodProcess, *key: str) -> float:
    return counted(server).get(key, 0) - before.get(key, 0)


async def together(server: PodProcess, questions: list[object], **headers: str) -> list[httpx.Response]:
    async with httpx.AsyncClient(timeout=60) as client:
        return list(await asyncio.gather(*(client.post(server.infer, json=q, headers=headers) for q in questions)))


async def test_equal_requests_are_computed_once_and_then_not_at_all(server: PodProcess) -> None:
    server.apply_knobs({"maxWait": "200ms", "cacheBytes": "1Mi"})
    before = counted(server)
    answers = await together(server, [question([[11, 12, 13]])] * 6)
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.text for answer in answers}) == 1
    assert grown(before, server, "headway_batch_rows_sum") == 1
    shared = [grown(before, server, "headway_cache_requests_total", how) for how in ("follow", "hit")]
    assert sum(shared) == 5
    (again,) = await together(server, [question([[11, 12, 13]])])
    assert again.json()["outputs"] == answers[0].json()["outputs"]
    assert grown(before, server, "headway_batch_rows_sum") == 1
    assert grown(before, server, "headway_cache_requests_total", "hit") == shared[1] + 1
    assert counted(server)["headway_cache_entries",] == 1


async def test_a_cache_that_is_turned_off_keeps_nothing(server: PodProcess) -> None:
    server.apply_knobs({"maxWait": "0ms", "cacheBytes": "1Mi"})
    await together(server, [question([[21, 22]])])
    server.apply_knobs({"maxWait": "0ms"})
    assert counted(server)["headway_cache_bytes",] == 0
    before = counted(server)
    await together(server, [question([[21, 22]])])
    assert grown(before, server, "headway_batch_rows_sum") == 1


async def test_what_an_answer_may_hold_rules_also_those_that_were_kept(server: PodProcess) -> None:
    server.apply_knobs({"maxWait": "0ms", "cacheBytes": "1Mi"})
    await together(server, [question([[23, 24]])])
    server.apply_knobs({"maxWait": "0ms", "cacheBytes": "1Mi", "nonFinite": "Reject"})
    assert counted(server)["headway_cache_entries",] == 0


async def test_a_run_of_different_lengths_shows_its_padding(server: PodProcess) -> None:
    server.apply_knobs({"maxWait": "2s", "maxBatch": 4})
    before = counted(server)
    answers = await together(server, [question([[1] * length]) for length in (13, 13, 12, 16)])
    assert {answer.status_code for answer in answers} == {200}
    assert grown(before, server, "headway_cells_total", "real") == 54
    runs = grown(before, server, "headway_run_seconds_count")
    assert 0 <= grown(before, server, "headway_cells_total", "padding") <= (10 if runs == 1 else 4)
    assert grown(before, server, "headway_run_requests_total") == 4
    assert grown(before, server, "headway_busy_seconds_total") > 0


async def test_waiting_is_seen_by_priority(server: PodProcess) -> None:
    before = counted(server)
    await together(server, [question([[1, 2]])], **{PRIORITY_HEADER: "low"})
    assert grown(before, server, "headway_queue_seconds_count", "low") == 1
    assert grown(before, server, "headway_queue_seconds_count", "normal") == 0


async def test_ids_that_the_examples_did_not_have_show_as_drift(server: PodProcess) -> None:
    before = counted(server)
    end = time.monotonic() + 60
    while grown(before, server, "headway_drift_samples_total") < 2:  # looked at as often as takes 1 % of the time
        assert time.monotonic() < end, "nothing is looked at"
        await together(server, [question([[41, 42, 43]])])
        await asyncio.sleep(0.05)
    seen = counted(server)
    assert seen["headway_drift_expected", "input", "max", "ids"] == 4
    assert seen["headway_drift_seen", "input", "max", "ids"] >= 43
    assert seen["headway_drift_seen", "input", "outside", "ids"] > 0
    assert seen["headway_drift_shift", "input", "ids"] > 1
    assert sum(value for key, value in seen.items() if key[::2] == ("headway_predictions_total", "pooled")) > 0


async def test_a_client_that_leaves_is_counted(server: PodProcess) -> None:
    server.apply_knobs({"maxWait": "20s", "queue": {"timeout": "30s"}})
    before = counted(server)
    async with httpx.AsyncClient(timeout=httpx.Timeout(30, read=0.05)) as client:
        with pytest.raises(httpx.ReadTimeout):
            await client.post(server.infer, json=question([[1, 2, 3]]))
    await asyncio.to_thread(until, lambda: grown(before, server, "headway_cancelled_total"), "the count")
    assert grown(before, server, "headway_cancelled_total") == 1
