"""What `headway serve` says while it serves: of knobs that are edited, and of trials that the pod made."""

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from headway_runtime.cli.serve_words import in_force, in_words, structured

from tests.unit.small_models import Encoder, export

PROGRAM = "import sys, headway_runtime.cli as c; c.main()"


def test_knobs_that_are_edited_while_it_serves_are_told(tmp_path: Path) -> None:
    artifact = export(Encoder, tmp_path / "encoder.pt2")
    command = [sys.executable, "-c", PROGRAM, "serve", str(artifact), "--port", "0", "--admin-port", "0"]
    process = subprocess.Popen([*command, "--grpc-port", "0"], stderr=subprocess.PIPE, text=True)
    said: list[str] = []
    stream = process.stderr
    assert stream is not None
    reader = threading.Thread(target=lambda: said.extend(stream))
    reader.start()
    try:
        until(lambda: any(line.startswith("Ctrl-C") for line in said), said)
        at_first = len(said)
        knobs = Path(next(line.split()[1] for line in said if line.startswith("  knobs  ")))
        written = json.loads(knobs.read_text())
        assert f"  knobs in force: maxBatch {written['maxBatch']}, maxWait 2ms\n" in said
        for change, says in (
            ({"maxBatch": 2, "maxWait": "0ms"}, "knobs in force: maxBatch 2, maxWait 0s\n"),
            ({"maxBatch": 4096}, "  spec.batching.maxBatch: 4096 is "),
            ({"maxBach": 4}, "knobs passed over, because there are none of these names: maxBach\n"),
            ({"maxWait": "soon"}, "knobs refused, so that those of before stay in force: spec.batching.maxWait"),
        ):
            knobs.write_text(json.dumps({**written, **change}))
            until(lambda says=says: any(line.startswith(says) for line in said[at_first:]), said)  # type: ignore[misc]
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        reader.join()
        stream.close()


def until(happened: Callable[[], bool], said: list[str]) -> None:
    end = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < end, "".join(said)
        time.sleep(0.05)


@pytest.mark.parametrize("verdict", ["Unproven", "Failed"])
def test_a_dimension_that_is_not_padded_is_a_note_of_what_follows(verdict: str) -> None:
    told = in_words({"event": "padding_tried", "level": "warning", "dimension": "sequence", "verdict": verdict})
    assert told == ("note: only requests of equal sequence share a run; answers are right either way: docs/padding.md")


@pytest.mark.parametrize(("unlogged", "more"), [(0, ""), (3, "; 3 more before that")])
def test_a_request_that_failed_is_said_in_words(unlogged: int, more: str) -> None:
    fields = {"event": "program_failed", "level": "warning", "unlogged": unlogged, "error_type": "IndexError"}
    assert in_words(fields) == f"warning: the program failed on a request (IndexError): its answer says why{more}"


def test_warnings_are_shown_and_what_is_less_is_not() -> None:
    assert in_words({"event": "started", "level": "info"}) is None
    assert in_words({"event": "odd", "level": "warning", "time": "now", "rows": 3}) == "warning: odd rows=3"
    assert in_words({"event": "bad", "level": "error", "traceback": "T"}) == "error: bad \nT"
    assert structured("Traceback") is None
    assert structured("[1]") is None


def test_a_knob_that_has_changed_is_named() -> None:
    before = {"maxBatch": 8, "maxWait": "0s", "queue": {"capacity": 9}, "latencyTarget": "5ms"}
    now = {"maxBatch": 8, "maxWait": "0s", "queue": {"capacity": 7}}
    assert in_force(now, ["why"], before) == (
        "knobs in force: maxBatch 8, maxWait 0s, queue.capacity 7, latencyTarget unset\n  why"
    )
