"""Small documents over HTTP: metadata and reports, before and after a measurement."""

import http.client
import json
from typing import Any
from urllib.parse import urlsplit

from headway_runtime.bench.connection import Address
from headway_runtime.bench.errors import BenchError


def address_of(url: str, option: str = "--url") -> Address:
    """Host and port of an `http://` URL. Raises BenchError."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise BenchError(f"{option} {url}: {error}") from None
    if parts.scheme != "http" or host is None:
        raise BenchError(f"{option} {url}: only http:// is measured, such as http://127.0.0.1:8080")
    return Address(host, port or 80)


def fetch_json(url: str, *, seconds: float = 10) -> dict[str, Any]:
    """GET a JSON object. Raises BenchError."""
    status, body = exchange(url, "GET", None, {}, seconds=seconds)
    if status != 200:
        raise BenchError(f"GET {url}: {status} {body[:300].decode(errors='replace')}")
    try:
        document = json.loads(body)
    except ValueError:
        raise BenchError(f"GET {url}: no JSON") from None
    if not isinstance(document, dict):
        raise BenchError(f"GET {url}: no JSON object")
    return document


def exchange(
    url: str, method: str, body: bytes | None, headers: dict[str, str], *, seconds: float = 30
) -> tuple[int, bytes]:
    """One request on a connection of its own: status and body. Raises BenchError when nothing answers."""
    address, parts = address_of(url), urlsplit(url)
    connection = http.client.HTTPConnection(address.host, address.port, timeout=seconds)
    try:
        connection.request(method, parts.path or "/", body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException) as error:
        raise BenchError(f"{method} {url}: {error or type(error).__name__}") from None
    finally:
        connection.close()
