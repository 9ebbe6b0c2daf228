"""The parts of the peer comparison that need no peer: reading /proc, trees of processes, figures, the client."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.bench.peers import processes
from tests.bench.peers.client import Exchange, Load, RefusedError, WrongAnswerError, once
from tests.bench.peers.figures import Figure, table
from tests.bench.peers.forms import Form, binary, instances, oip, plain
from tests.bench.peers.processes import ProcessTable, Stat, cpu_seconds, descendants

SUPERVISE = Path(processes.__file__).with_name("supervise.py")
LINE = "42 (a (b) c) S 7 42 42 0 -1 4194560 1 2 3 4 {user} {system} {cuser} {csystem} 20 0 1 0 99 1000 {pages} 0 0"


def stat(pid: int, parent: int, own: int = 0, reaped: int = 0) -> Stat:
    return Stat(pid=pid, parent=parent, own=own, reaped=reaped, resident=0)


def test_a_line_of_proc_is_read_whatever_the_process_is_called() -> None:
    found = Stat.parse(LINE.format(user=10, system=5, cuser=3, csystem=2, pages=4))
    assert found == Stat(pid=42, parent=7, own=15, reaped=5, resident=4 * processes.PAGE)


def test_a_tree_holds_every_descendant_and_nothing_else() -> None:
    table = ProcessTable({s.pid: s for s in (stat(1, 0), stat(2, 1), stat(3, 2), stat(4, 1), stat(5, 9))})
    assert descendants(1, table) == [2, 4, 3]
    assert descendants(3, table) == []


def test_the_time_of_a_tree_includes_children_that_have_ended() -> None:
    table = ProcessTable({s.pid: s for s in (stat(1, 0, 100, 7), stat(2, 1, 30), stat(3, 2, 3, 10), stat(4, 9, 1000))})
    assert cpu_seconds(1, table) == 150 / processes.TICKS


def test_time_that_a_grandchild_spent_is_seen_after_it_has_ended() -> None:
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    script = (
        f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}]); print('over', flush=True); input()"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"over\n"
        assert cpu_seconds(parent.pid, ProcessTable.now()) >= 0.28
        parent.communicate(b"\n")


def test_what_a_server_leaves_behind_is_counted_and_ended_with_it(tmp_path: Path) -> None:
    daemon = "import os, time\nopen('pid', 'w').write(str(os.getpid()))\n"
    daemon += "while time.process_time() < 0.3: pass\ntime.sleep(60)"
    script = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {daemon!r}], start_new_session=True)"
    command = [sys.executable, SUPERVISE, sys.executable, "-c", script]
    with subprocess.Popen(command, cwd=tmp_path) as supervisor:
        deadline = time.monotonic() + 20
        while cpu_seconds(supervisor.pid, ProcessTable.now()) < 0.28:
            assert time.monotonic() < deadline, "the daemon's time is not counted"
            time.sleep(0.05)
        orphan = int((tmp_path / "pid").read_text())
        assert orphan in descendants(supervisor.pid, ProcessTable.now())
        supervisor.terminate()
        supervisor.wait(30)
    with pytest.raises(ProcessLookupError):
        os.kill(orphan, 0)


def test_a_figure_is_the_median_with_its_range() -> None:
    figure = Figure.of([5.0, 1.0, 4.0, 2.0, 1234.5])
    assert (figure.median, figure.least, figure.greatest) == (4, 1, 1234.5)
    assert figure.text(1) == "4.0 (1.0-1,234.5)"


def test_a_table_is_markdown_with_even_columns() -> None:
    assert table(["a", "bb"], [["ccc", "d"]]).splitlines() == ["| a   | bb |", "|-----|----|", "| ccc | d  |"]


@pytest.mark.parametrize(
    ("form", "body"),
    [
        (plain("/p", "y"), b'{"y": [1.5, 2.5]}'),
        (instances("/p"), b'{"predictions": [[1.5, 2.5]]}'),
        (oip("/p", "FP32"), b'{"outputs": [{"data": [1.5, 2.5]}]}'),
    ],
)
def test_every_protocol_finds_the_numbers_of_its_answer(form: Form, body: bytes) -> None:
    assert form.decode(b"", body) == [1.5, 2.5]


def test_a_binary_request_says_where_its_tensors_begin_and_so_does_its_answer() -> None:
    form = binary("/p", "FP32")
    head, _, body = form.request({"x": [1.5, 2.5]}).partition(b"\r\n\r\n")
    length = int(head.partition(b"inference-header-content-length: ")[2].split()[0])
    assert json.loads(body[:length])["inputs"][0]["parameters"] == {"binary_data_size": 8}
    assert len(body) == length + 8
    answer = b"\r\nInference-Header-Content-Length: 2"
    assert form.decode(answer, b"{}" + body[length:]) == [1.5, 2.5]


@contextmanager
def serving(*answers: bytes) -> Iterator[int]:
    """A port that gives these answers, one per request and in pieces, each connection from the first on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve(connection: socket.socket) -> None:
            with connection:
                for answer in answers:
                    if not connection.recv(65536):
                        return
                    for piece in (answer[:20], answer[20:]):
                        connection.sendall(piece)
                        time.sleep(0.01)

        def accept() -> None:
            while True:
                try:
                    connection = listener.accept()[0]
                except OSError:
                    return
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def exchange(right: bytes) -> Exchange:
    def check(head: bytes, body: bytes) -> None:
        if body != right:
            raise WrongAnswerError(repr(body))

    return Exchange(b"POST / HTTP/1.1\r\n\r\n", check)


def answer(body: bytes, status: int = 200) -> bytes:
    return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)


def test_an_answer_in_pieces_or_in_chunks_is_put_together() -> None:
    chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nri\r\n3\r\nght\r\n0\r\n\r\n"
    for whole in (answer(b"right"), chunked):
        with serving(whole) as port:
            once(port, exchange(b"right"))


def test_a_wrong_answer_ends_the_run() -> None:
    with serving(answer(b"wrong")) as port, pytest.raises(WrongAnswerError, match="wrong"):
        once(port, exchange(b"right"))


def test_a_refusal_is_no_answer_and_tells_what_the_server_said() -> None:
    with serving(answer(b"too many", 429)) as port, pytest.raises(RefusedError, match=r"429: 1.*too many") as caught:
        once(port, exchange(b"right"))
    assert caught.value.status == 429


def test_an_open_loop_charges_a_stalled_server_for_those_who_wait() -> None:
    """One connection, answers after 10 ms and more, 400 requests a second: all but the first wait ever longer."""
    with serving(*[answer(b"right")] * 100) as port:
        outcome = Load(port, [exchange(b"right")], 1, seed=1).open(400, 0.1)
    assert 20 <= len(outcome.latencies) <= 70
    assert outcome.latencies[-1] > 5 * outcome.latencies[0]
    assert outcome.latencies[-1] > 0.1


def test_a_connection_that_the_server_closes_is_renewed() -> None:
    closing = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nright"
    with serving(closing) as port:
        outcome = Load(port, [exchange(b"right")], 2).closed(0.2)
    assert len(outcome.latencies) > 4
