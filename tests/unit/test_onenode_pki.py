"""The embedded cluster's certificates, under the checks that Python makes of its own accord from 3.13 on."""

import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from onenode import pki
from onenode.layout import Layout


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    to = tmp_path_factory.mktemp("keys") / "pki"
    pki.make(Layout(), to)
    return to


@pytest.fixture
def server(keys: Path) -> Iterator[tuple[str, int]]:
    """Where one client is answered with the API server's certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(keys / "apiserver.crt", keys / "apiserver.key")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=greet, args=(listener, context))
        thread.start()
        yield listener.getsockname()
        thread.join(60)


def greet(listener: socket.socket, context: ssl.SSLContext) -> None:
    connection, _ = listener.accept()
    with connection:
        try:
            with context.wrap_socket(connection, server_side=True) as secure:
                secure.sendall(b"hello")
        except OSError:  # the client's refusal, which the client tells
            return


def test_a_strict_client_trusts_the_api_server(keys: Path, server: tuple[str, int]) -> None:
    context = ssl.create_default_context(cafile=str(keys / "ca.crt"))
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    with socket.create_connection(server) as plain, context.wrap_socket(plain, server_hostname=server[0]) as secure:
        assert secure.recv(5) == b"hello"
