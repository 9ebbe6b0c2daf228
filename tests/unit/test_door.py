"""Whoever the system has connected is let in before a listener closes, and nobody stands before a closed one."""

import asyncio
import socket
import time
from collections.abc import Coroutine
from typing import Any

import pytest
import uvloop
from headway_runtime import door
from headway_runtime.ports import listen

CLIENTS = 5


class Greeting(asyncio.Protocol):
    """Says a word to everybody."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, uvloop.loop.TCPTransport)
        transport.write(b"hello")
        transport.close()


def as_a_pod(story: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(story)


def come(listener: socket.socket) -> socket.socket:
    """A client whom the system connects while the loop, whose thread this is, stands still."""
    return socket.create_connection(listener.getsockname(), timeout=60)


def test_whoever_waits_is_accepted_and_afterwards_nobody_listens() -> None:
    async def story() -> None:
        with listen("127.0.0.1", 0) as listener:
            server = await asyncio.get_running_loop().create_server(Greeting, sock=listener)
            address, clients = listener.getsockname(), [come(listener) for _ in range(CLIENTS)]
            await door.shut(listener, server.close)
            for client in clients:
                with client:
                    assert await asyncio.to_thread(client.recv, 100) == b"hello"
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(address, timeout=60)

    as_a_pod(story())


def test_a_door_at_which_nobody_waits_is_shut_in_the_same_turn() -> None:
    async def story() -> None:
        with listen("127.0.0.1", 0) as listener:
            server = await asyncio.get_running_loop().create_server(Greeting, sock=listener)
            turns: list[None] = []
            asyncio.get_running_loop().call_soon(turns.append, None)
            await door.shut(listener, server.close)
            assert not turns

    as_a_pod(story())


def test_a_loop_that_accepts_nobody_does_not_keep_it_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "LONGEST", 0.1)

    async def story() -> None:
        with listen("127.0.0.1", 0) as listener:
            listener.listen()
            with come(listener) as client:
                began = time.monotonic()
                await door.shut(listener, listener.close)
                assert time.monotonic() - began >= 0.1
                with pytest.raises(ConnectionResetError):
                    client.recv(100)

    as_a_pod(story())
