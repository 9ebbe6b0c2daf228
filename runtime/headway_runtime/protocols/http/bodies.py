"""From a body to a question, and from a reply to a body; and which of them are too large for the event loop."""

import torch

from headway_runtime.protocols import oip
from headway_runtime.protocols.http.compression import compress, decompress
from headway_runtime.protocols.http.heads import Coding, Head
from headway_runtime.serving.values import Reply

LARGE = 2**19
"""Bytes of JSON that take some milliseconds to parse: beyond it a thread reads them, piece by piece."""

LARGE_COMPRESSED = LARGE // 1032  # bytes, which may be so many times as many

MANY = 2**15
"""Numbers of an answer that take some milliseconds to write as JSON."""

WORTH_COMPRESSING = 2**14
"""Bytes of JSON. Most libraries accept gzip by default, and inside a cluster it costs more than it saves."""


def is_large(body: bytes | bytearray, head: Head) -> bool:
    """Whether reading it would keep other requests waiting."""
    if head.coding is not None:
        return len(body) > LARGE_COMPRESSED
    return (len(body) if head.json_length is None else min(head.json_length, len(body))) > LARGE


def read(body: bytes | bytearray, head: Head, limit: int) -> oip.Question:
    """`limit`: bytes after decompression. Raises RequestError."""
    if head.coding is not None:
        body = decompress(body, head.coding, limit)
    return oip.decode(body, head.json_length, in_pieces=len(body) > LARGE)


def is_long(reply: Reply, head: Head) -> bool:
    """Whether writing it would keep other requests waiting."""
    numbers = 0
    for output in reply.outputs:
        value = output.value
        numbers += value.numel() if isinstance(value, torch.Tensor) else sum(map(len, value.items))
    return numbers > (MANY if head.accepts is None else MANY // 4)


def write(question: oip.Question, reply: Reply, identity: bytes, accepts: Coding | None) -> tuple[oip.Written, bool]:
    """The body, and whether it is compressed. Raises RequestError."""
    written = oip.encode(question, reply, identity)
    if accepts is None or written.json_length is not None or written.length < WORTH_COMPRESSING:
        return written, False
    content = compress(written.parts, accepts)
    return oip.Written((content,), len(content)), True
