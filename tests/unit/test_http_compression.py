"""Compressed bodies, both ways, and what they may hold."""

import gzip
import json
import zlib
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from headway_runtime.errors import InvalidRequestError, TooLargeError
from headway_runtime.program import Program, load_program
from headway_runtime.protocols.http.compression import compress, decompress
from headway_runtime.protocols.http.heads import Coding, accepted
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.http_server import HttpServer, http_server, post
from tests.unit.pod_process import question
from tests.unit.small_models import Encoder, export, prepare


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    folder = tmp_path_factory.mktemp("compression")
    prepared = prepare(export(Encoder, folder / "model.pt2"), folder / "model")
    return load_program(prepared, dimension_names={"sequence": "ids.1"})


@pytest.fixture(scope="module")
def server(program: Program) -> Iterator[HttpServer]:
    with http_server(program, batch=[1, 64], sequence=[64]) as started:
        yield started


def raw(body: bytes) -> bytes:
    engine = zlib.compressobj(wbits=-15)
    return engine.compress(body) + engine.flush()


GOOD = json.dumps(question([[1, 2]])).encode()
LONG = json.dumps({**question([[1, 2]]), "parameters": {"note": "x" * 300_000}}).encode()


@pytest.mark.parametrize("body", [GOOD, LONG], ids=["short", "long"])
@pytest.mark.parametrize(
    ("coding", "squeeze"),
    [("gzip", gzip.compress), ("GZIP", gzip.compress), ("deflate", zlib.compress), ("deflate", raw)],
)
def test_a_compressed_request_is_read(
    server: HttpServer, coding: str, squeeze: Callable[[bytes], bytes], body: bytes
) -> None:
    with server.ask(post(squeeze(body), f"content-encoding: {coding}")) as stream:
        assert stream.answer().status == 200


def test_the_limit_holds_for_what_comes_out(server: HttpServer) -> None:
    server.knobs(requestBytes="1Mi")
    for size, status in ((900_000, 200), (1 << 20, 413), (200 << 20, 413)):
        body = json.dumps({**question([[1]]), "parameters": {"note": "x" * size}}).encode()
        squeezed = gzip.compress(body, 1)
        with server.ask(post(squeezed, "content-encoding: gzip")) as stream:
            answer = stream.answer()
            assert answer.status == status
            assert status == 200 or "when decompressed" in answer.json()["error"] or len(squeezed) > 1 << 20
    server.knobs()


@pytest.mark.parametrize(
    "damaged",
    [GOOD, gzip.compress(GOOD)[:-9], gzip.compress(GOOD) + b"more", b"\x1f\x8b", zlib.compress(GOOD)],
)
def test_a_body_that_is_not_what_it_claims_to_be_is_refused(server: HttpServer, damaged: bytes) -> None:
    with server.ask(post(damaged, "content-encoding: gzip")) as stream:
        answer = stream.answer()
        assert (answer.status, "content-encoding gzip" in answer.json()["error"]) == (400, True)


@pytest.mark.parametrize(("accept", "coding"), [("gzip, deflate", "gzip"), ("deflate", "deflate"), ("br", None)])
def test_a_long_answer_is_compressed_when_the_client_says_so(
    server: HttpServer, accept: str, coding: str | None
) -> None:
    def values(ids: list[list[int]], accept: str) -> tuple[str | None, object]:
        answer = server.client.post(server.infer, json=question(ids), headers={"accept-encoding": accept})
        assert answer.status_code == 200
        assert coding is None or "vary" not in answer.headers or answer.headers["vary"] == "accept-encoding"
        return answer.headers.get("content-encoding"), answer.json()["outputs"][1]["data"]

    for rows in (16, 64):  # on the event loop, and in a thread
        ids = np.random.default_rng(1).integers(0, 50, (rows, 64)).tolist()
        found, plain = values(ids, accept), values(ids, "identity")
        assert found == (coding, plain[1])
        assert plain[0] is None
    assert values([[1]], accept)[0] is None, "not worth it"


@given(st.binary(max_size=500), st.integers(0, 600), st.sampled_from(Coding))
def test_whatever_is_compressed_comes_back_within_its_limit(body: bytes, limit: int, coding: Coding) -> None:
    squeezed = compress((body[:7], body[7:]), coding)
    if len(body) <= limit:
        assert decompress(squeezed, coding, limit) == body
    else:
        with pytest.raises(TooLargeError):
            decompress(squeezed, coding, limit)


@given(st.binary(max_size=200), st.sampled_from(Coding))
def test_any_bytes_are_decompressed_or_refused(body: bytes, coding: Coding) -> None:
    try:
        decompress(body, coding, 1000)
    except (InvalidRequestError, TooLargeError):
        return


@pytest.mark.parametrize(
    ("header", "coding"),
    [
        (b"", None),
        (b"gzip", Coding.GZIP),
        (b"br, gzip;q=0.5, deflate;q=0.8", Coding.DEFLATE),
        (b"gzip;q=0", None),
        (b"gzip;q=0, *", Coding.DEFLATE),
        (b"*;q=0.1", Coding.GZIP),
        (b"identity", None),
        (b"gzip;q=nonsense", None),
    ],
)
def test_the_coding_that_a_client_likes_best_is_chosen(header: bytes, coding: Coding | None) -> None:
    assert accepted(header) is coding
