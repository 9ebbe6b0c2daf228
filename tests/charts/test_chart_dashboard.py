"""The dashboard in the chart: what each panel asks, asked of a real Prometheus that scrapes a real pod."""

import contextlib
import itertools
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from onenode.layout import cache

from tests import decoders
from tests.charts.chart import only, render
from tests.charts.prometheus import NoPrometheusError, Prometheus, has_scraped, program, prometheus
from tests.unit.pod_process import MODEL, REVISION, PodProcess, pod, question
from tests.unit.small_models import Encoder, export, prepare

ENABLED = {"metrics": {"dashboard": {"enabled": True}}}
LABELS = {"namespace": "prod", "headway_dev_model": MODEL, "headway_dev_revision": REVISION}
VARIABLES = {"$namespace": ".*", "$model": MODEL, "$__rate_interval": "1m"}
BATCHING = {"shapeBuckets": {"batch": [1, 4], "sequence": [4, 8]}, "dimensions": {"sequence": "ids.1"}}
EMPTY = {"GPU memory"}  # there is none here
TEXT = "Text generation"  # the row of what only decoders have


@pytest.fixture(scope="module")
def dashboard(helm_program: Path) -> dict[str, Any]:
    data = only(render(helm_program, ENABLED), "ConfigMap")["data"]
    (text,) = data.values()
    found: dict[str, Any] = json.loads(text)
    return found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Prometheus, while a pod answers requests of two lengths, some of them wrong, with a response cache."""
    folder = tmp_path_factory.mktemp("dashboard")
    model = prepare(export(Encoder, folder / "model.pt2"), folder / "model")
    with pod(folder, model, batching=BATCHING) as served:
        served.wait_for_phase()
        served.apply_knobs({"maxWait": "5ms", "cacheBytes": "1Mi"})
        with watched(folder, served, ask) as running:
            yield running


@pytest.fixture(scope="module")
def text_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Prometheus, while a pod writes texts, several with the same beginning, and guesses by looking back."""
    folder = tmp_path_factory.mktemp("dashboard-text")
    model = prepare(decoders.tiny(folder), folder / "model")
    generation = {"speculation": {"method": "PromptLookup"}, "maxLength": 256, "cacheBytes": "8Mi"}
    with pod(folder, model, generation=generation) as served:
        served.wait_for_phase()
        with watched(folder, served, ask_for_text) as running:
            yield running


@contextlib.contextmanager
def watched(
    folder: Path, served: PodProcess, asking: Callable[[PodProcess, threading.Event], None]
) -> Iterator[Prometheus]:
    """Prometheus that scrapes the pod, while two clients ask."""
    try:
        binary = program(cache())
    except NoPrometheusError as error:
        pytest.skip(f"no Prometheus: {error}")
    ended = threading.Event()
    traffic = [threading.Thread(target=asking, args=(served, ended)) for _ in range(2)]
    for each in traffic:
        each.start()
    try:
        with prometheus(binary, folder, f"127.0.0.1:{served.admin_port}", LABELS) as running:
            yield running
    finally:
        ended.set()
        for each in traffic:
            each.join()


def ask_for_text(served: PodProcess, ended: threading.Event) -> None:
    beginning = "one two three four five six seven eight nine ten " * 3
    for number in itertools.count():
        body = {"model": MODEL, "prompt": f"{beginning}{number}", "max_tokens": 12, "temperature": 0}
        answer = served.client.post(f"{served.url}/v1/completions", json=body)
        assert answer.status_code == 200, answer.text
        if ended.wait(0.02):
            return


def ask(served: PodProcess, ended: threading.Event) -> None:
    for number in itertools.count():
        length = 3 + number % 5
        body = question([[number % 7 + 1] * length]) if number % 20 else {"inputs": []}
        assert served.client.post(served.infer, json=body).status_code == (200 if number % 20 else 400)
        if ended.wait(0.02):
            return


def panels(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def below(dashboard: dict[str, Any], row: str) -> list[dict[str, Any]]:
    """The panels of a row."""
    rows = [panel for panel in dashboard["panels"] if panel["type"] == "row"]
    tops = [each["gridPos"]["y"] for each in rows] + [10**6]
    at = [each["title"] for each in rows].index(row)
    return [panel for panel in panels(dashboard) if tops[at] < panel["gridPos"]["y"] < tops[at + 1]]


def test_every_panel_has_an_answer(dashboard: dict[str, Any], server: Prometheus) -> None:
    text = below(dashboard, TEXT)
    assert silent_among([panel for panel in panels(dashboard) if panel not in text], server) == EMPTY


def test_every_panel_about_text_has_an_answer(dashboard: dict[str, Any], text_server: Prometheus) -> None:
    assert silent_among(below(dashboard, TEXT), text_server) == set()


def silent_among(asked: list[dict[str, Any]], server: Prometheus) -> set[str]:
    """The titles of those panels to which Prometheus knows no answer."""
    silent = set()
    for panel in asked:
        for target in panel["targets"]:
            query = target["expr"]
            for variable, value in VARIABLES.items():
                query = query.replace(variable, value)
            found = server.ask(query)
            if not found:
                silent.add(panel["title"])
            for sample in found:
                named = {word.strip("{}") for word in target["legendFormat"].split() if word.startswith("{{")}
                assert named <= sample["metric"].keys(), f"{panel['title']}: its legend names labels that are not there"
    return silent


def test_panels_lie_beside_each_other_and_say_what_they_show(dashboard: dict[str, Any]) -> None:
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        at = panel["gridPos"]
        cells = set(itertools.product(range(at["x"], at["x"] + at["w"]), range(at["y"], at["y"] + at["h"])))
        assert not cells & taken
        assert max(x for x, _ in cells) < 24
        taken |= cells
    assert all(panel["description"] and panel["fieldConfig"]["defaults"]["unit"] for panel in panels(dashboard))


def test_there_is_none_unless_it_is_asked_for(helm_program: Path) -> None:
    assert not [obj for obj in render(helm_program) if obj["kind"] == "ConfigMap"]


class Starting(BaseHTTPRequestHandler):
    """What Prometheus answers while it listens and has not read what it keeps."""

    def do_GET(self) -> None:
        self.send_error(503)

    def log_message(self, *_: object) -> None:
        pass


def test_a_prometheus_that_is_starting_is_waited_for() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Starting) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        assert not has_scraped(Prometheus(f"http://127.0.0.1:{server.server_port}"))
        server.shutdown()
        thread.join()
