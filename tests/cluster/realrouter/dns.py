"""A DNS server for headless Services: A records that a test adds and removes, as the cluster's DNS would."""

import asyncio
import struct
from ipaddress import IPv4Address
from typing import cast

_ANSWER = struct.Struct("!HHHLH")  # pointer to the question's name, type A, class IN, TTL, length
_A, _IN, _NO_SUCH_NAME = 1, 1, 3


class Dns(asyncio.DatagramProtocol):
    """Answers A queries from `records`; keys are lower-case names with a dot at the end."""

    def __init__(self) -> None:
        self.records: dict[str, list[str]] = {}
        self._transport: asyncio.DatagramTransport | None = None
        self._closed = asyncio.Event()

    async def start(self) -> int:
        """Serve on loopback; returns the port."""
        transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(lambda: self, ("127.0.0.1", 0))
        port: int = transport.get_extra_info("sockname")[1]
        return port

    async def stop(self) -> None:
        """Stop serving, and wait until the socket is closed."""
        if self._transport is not None:
            self._transport.close()
            await self._closed.wait()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Part of asyncio's protocol interface."""
        self._transport = cast("asyncio.DatagramTransport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Part of asyncio's protocol interface."""
        self._closed.set()

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """One query, one answer."""
        name, end = _question_name(data)
        (kind,) = struct.unpack_from("!H", data, end)
        addresses = self.records.get(name.lower()) if kind == _A else []
        code = _NO_SUCH_NAME if addresses is None else 0
        question = data[12 : end + 4]
        header = data[:2] + struct.pack("!HHHHH", 0x8580 | code, 1, len(addresses or []), 0, 0)
        answers = [_ANSWER.pack(0xC00C, _A, _IN, 1, 4) + IPv4Address(address).packed for address in addresses or []]
        assert self._transport is not None
        self._transport.sendto(header + question + b"".join(answers), addr)


def _question_name(data: bytes) -> tuple[str, int]:
    """The name that is asked for, and the offset after it."""
    labels, at = [], 12
    while (length := data[at]) != 0:
        labels.append(data[at + 1 : at + 1 + length].decode())
        at += 1 + length
    return ".".join(labels) + ".", at + 1
