"""The JSON object in the body of a request."""

from typing import Any

import orjson

from headway_runtime.errors import InvalidRequestError
from headway_runtime.protocols.http.compression import decompress
from headway_runtime.protocols.http.heads import Head
from headway_runtime.protocols.pieces import check_count


def document_of(body: bytes | bytearray, head: Head, limit: int) -> dict[str, Any]:
    """`limit`: bytes after decompression. Raises RequestError."""
    whole = body if head.coding is None else decompress(body, head.coding, limit)
    check_count(whole)
    try:
        document = orjson.loads(whole)
    except orjson.JSONDecodeError as error:
        raise InvalidRequestError(f"the body is not JSON: {error}") from None
    if not isinstance(document, dict):
        raise InvalidRequestError("the body must be a JSON object, as OpenAI's API has it")
    return document
