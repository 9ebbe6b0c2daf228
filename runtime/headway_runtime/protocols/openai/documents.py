"""The JSON object in the body of a request."""

from typing import Any

from headway_runtime.protocols.http.compression import decompress
from headway_runtime.protocols.http.heads import Head
from headway_runtime.protocols.pieces import check_count, json_object


def document_of(body: bytes | bytearray, head: Head, limit: int) -> dict[str, Any]:
    """`limit`: bytes after decompression. Raises RequestError."""
    whole = body if head.coding is None else decompress(body, head.coding, limit)
    check_count(whole)
    return json_object(whole, ", as OpenAI's API has it")
