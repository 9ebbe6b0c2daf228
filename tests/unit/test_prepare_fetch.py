"""Fetching from files and from a real HTTP server: streamed, hashed, resumed, bounded, and honest about failures."""

import contextlib
import hashlib
import http.server
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from headway_runtime.prepare.errors import FetchError
from headway_runtime.prepare.fetch import Fetched, fetch
from headway_runtime.prepare.store import locate

DATA = bytes(range(256)) * 40_000  # 10 MB
DIGEST = f"sha256:{hashlib.sha256(DATA).hexdigest()}"
NO_CREDENTIALS = Path("/nonexistent")


class Handler(http.server.BaseHTTPRequestHandler):
    """`/half` always breaks in the middle; `/once` breaks once and can resume; `/plain` breaks once and cannot;
    `/redirected` leads to a signed URL that fails.
    """

    protocol_version = "HTTP/1.1"
    seen: ClassVar[list[tuple[str, str | None]]] = []
    broken: ClassVar[set[str]] = set()

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.seen.append((self.path, wanted))
        status = {"/missing": 404, "/forbidden": 403, "/bucket/secret": 403, "/unauthorized": 401, "/busy": 500}.get(
            self.path
        )
        if status is not None:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if self.path == "/bucket/unknown-key":
            body = b"<Error><Code>InvalidAccessKeyId</Code></Error>"
            self.send_response(400)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            return
        if self.path == "/redirected":
            self.send_response(302)
            self.send_header("Location", "/nowhere?X-Amz-Signature=TOPSECRET")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if self.path.startswith("/nowhere"):
            self.wfile.write(b"no HTTP\r\n\r\n")
            self.close_connection = True
            return
        start = int(wanted.removeprefix("bytes=").partition("-")[0]) if wanted and self.path == "/once" else 0
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(DATA) - start))
        self.send_header("ETag", '"one"')
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(DATA) - 1}/{len(DATA)}")
        self.end_headers()
        breaks = self.path == "/half" or (self.path in {"/once", "/plain"} and self.path not in self.broken)
        self.broken.add(self.path)
        with contextlib.suppress(ConnectionError):  # some tests leave early
            self.wfile.write(DATA[start : len(DATA) * 3 // 4] if breaks else DATA[start:])
        self.close_connection = breaks

    def log_message(self, *_: object) -> None:
        """The test's output is for the test."""


@pytest.fixture
def server() -> Iterator[str]:
    Handler.seen, Handler.broken = [], set()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"http://127.0.0.1:{httpd.server_address[1]}"
        httpd.shutdown()
        thread.join()


def get(
    uri: str, tmp_path: Path, *, credentials: Path = NO_CREDENTIALS, max_bytes: int = 1 << 30, attempts: int = 2
) -> Fetched:
    target = tmp_path / "artifact"
    found = fetch(uri, target, credentials=credentials, max_bytes=max_bytes, attempts=attempts, sleep=lambda _: None)
    assert target.read_bytes() == DATA
    return found


def test_a_file_is_fetched_and_hashed(tmp_path: Path) -> None:
    source = tmp_path / "a model.pt2"
    source.write_bytes(DATA)
    assert get(f"file://{tmp_path}/a%20model.pt2", tmp_path) == Fetched(DIGEST, len(DATA))


def test_an_object_is_fetched_over_http(server: str, tmp_path: Path) -> None:
    assert get(f"{server}/good", tmp_path) == Fetched(DIGEST, len(DATA))


@pytest.mark.parametrize(
    ("path", "reason"), [("missing", "NotFound"), ("forbidden", "Forbidden"), ("unauthorized", "Forbidden")]
)
def test_what_will_not_change_is_reported_at_once(server: str, path: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(FetchError) as error:
        get(f"{server}/{path}", tmp_path, attempts=5)
    assert error.value.reason == reason
    assert len(Handler.seen) == 1


def test_a_missing_file_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(FetchError) as error:
        get(f"file://{tmp_path}/missing.pt2", tmp_path)
    assert error.value.reason == "NotFound"


def test_a_broken_transfer_is_resumed_where_it_stopped(server: str, tmp_path: Path) -> None:
    assert get(f"{server}/once", tmp_path).digest == DIGEST
    (_, first), (_, second) = Handler.seen[0], Handler.seen[-1]
    assert first is None
    assert second is not None
    assert int(second.removeprefix("bytes=").partition("-")[0]) > 1 << 20


def test_a_broken_transfer_starts_again_where_resuming_is_not_possible(server: str, tmp_path: Path) -> None:
    assert get(f"{server}/plain", tmp_path).digest == DIGEST


def test_a_transfer_that_always_breaks_ends_unreachable(server: str, tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="in 2 attempts") as error:
        get(f"{server}/half", tmp_path)
    assert error.value.reason == "Unreachable"


def test_a_server_that_is_not_there_is_unreachable(tmp_path: Path) -> None:
    with pytest.raises(FetchError) as error:
        get("http://127.0.0.1:1/model.pt2", tmp_path, attempts=1)
    assert error.value.reason == "Unreachable"


def test_a_number_in_the_name_of_an_object_is_no_status(tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="in 2 attempts") as error:
        get("http://127.0.0.1:1/model-403.pt2", tmp_path)
    assert error.value.reason == "Unreachable"


def test_an_unknown_access_key_is_forbidden_whatever_the_status(server: str, tmp_path: Path) -> None:
    for name, value in {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_ENDPOINT_URL": server}.items():
        (tmp_path / name).write_text(value)
    with pytest.raises(FetchError) as error:
        get("s3://bucket/unknown-key", tmp_path, credentials=tmp_path)
    assert error.value.reason == "Forbidden"


def test_an_object_over_the_limit_is_refused_before_it_is_fetched(server: str, tmp_path: Path) -> None:
    with pytest.raises(FetchError, match=f"{len(DATA)} bytes") as error:
        get(f"{server}/good", tmp_path, max_bytes=len(DATA) - 1)
    assert error.value.reason == "TooLarge"
    assert (tmp_path / "artifact").stat().st_size == 0


def test_an_object_store_that_refuses_the_credentials_is_forbidden(
    server: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    secrets = tmp_path / "secret"
    secrets.mkdir()
    values = {
        "AWS_ACCESS_KEY_ID": "AKIDTOPSECRET",
        "AWS_SECRET_ACCESS_KEY": "verysecretvalue",
        "AWS_ENDPOINT_URL": server,
        "AWS_REGION": "us-east-1",
    }
    for name, value in {**values, "unrelated": "x"}.items():
        (secrets / name).write_text(f"{value}\n")
    with pytest.raises(FetchError) as error:
        get("s3://bucket/secret", tmp_path, credentials=secrets)
    assert error.value.reason == "Forbidden"
    assert Handler.seen[0][0] == "/bucket/secret"
    said = str(error.value) + "".join(capfd.readouterr())
    assert "TOPSECRET" not in said
    assert "verysecret" not in said


def test_an_unknown_setting_is_an_error_without_its_value(tmp_path: Path) -> None:
    (tmp_path / "AWS_NONSENSE").write_text("verysecretvalue")
    with pytest.raises(FetchError) as error:
        locate("s3://bucket/key", tmp_path)
    assert (error.value.reason, error.value.field) == ("InvalidCredentials", "spec.artifact.credentials")
    assert "AWS_NONSENSE" in str(error.value)
    assert "verysecret" not in str(error.value)


@pytest.mark.parametrize("value", [b"\xff\xfe", b"a\0b", b"x" * 70_000], ids=["binary", "zero byte", "too long"])
def test_a_setting_that_is_no_text_is_named_without_its_value(value: bytes, tmp_path: Path) -> None:
    (tmp_path / "AWS_ACCESS_KEY_ID").write_bytes(value)
    with pytest.raises(FetchError, match="AWS_ACCESS_KEY_ID is not UTF-8 text of at most 65536 bytes") as error:
        locate("s3://bucket/key", tmp_path)
    assert error.value.reason == "InvalidCredentials"


def test_which_keys_of_a_secret_are_used_is_logged(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for name in ("AWS_REGION", "aws_access_key_id", "GOOGLE_SERVICE_ACCOUNT"):
        (tmp_path / name).write_text("us-east-1")
    locate("s3://bucket/key", tmp_path)
    line = json.loads(capfd.readouterr().err)
    assert (line["used"], line["ignored"]) == (["AWS_REGION"], ["GOOGLE_SERVICE_ACCOUNT", "aws_access_key_id"])


def test_a_full_volume_is_said_at_once_and_not_taken_for_a_broken_transfer(server: str) -> None:
    with pytest.raises(FetchError, match="No space left on device") as error:
        fetch(f"{server}/good", Path("/dev/full"), credentials=NO_CREDENTIALS, sleep=lambda _: None)
    assert error.value.reason == "TooLarge"
    assert len(Handler.seen) == 1


def test_an_error_names_no_query_of_a_url_that_the_store_redirected_to(
    server: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(FetchError) as error:
        get(f"{server}/redirected", tmp_path, attempts=2)
    assert error.value.reason == "Unreachable"
    assert "TOPSECRET" not in str(error.value) + "".join(capfd.readouterr())


@pytest.mark.parametrize("kind", ["pipe", "directory"])
def test_what_is_no_regular_file_is_refused_instead_of_waited_for(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "model.pt2"
    os.mkfifo(path) if kind == "pipe" else path.mkdir()
    with pytest.raises(FetchError, match="not a file") as error:
        get(path.as_uri(), tmp_path)
    assert error.value.reason == "InvalidURI"


@pytest.mark.parametrize(
    "uri",
    [
        "model.pt2",
        "ftp://host/model.pt2",
        "s3://bucket",
        "http://user:pw@host/m",
        "http://host/m?sig=1",
        "file://host/m",
        "pvc://claim/m",
        "s3://[bucket/m",
        "http://host:99999/m",
        "gs://bucket/a%00b",
        "s3://bucket/a//b",
        "file:///models/../m.pt2",
        "az://account/container",
    ],
)
def test_a_uri_that_names_no_object_is_invalid(uri: str) -> None:
    with pytest.raises(FetchError) as error:
        locate(uri, NO_CREDENTIALS)
    assert error.value.reason == "InvalidURI"
    assert error.value.field == "spec.artifact.uri"
