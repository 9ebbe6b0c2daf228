"""How each protocol writes a question and where its answer stands. A question maps names to rows of numbers."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import orjson

Question = Mapping[str, Sequence[float]]
_HEADER_LENGTH = re.compile(rb"\r\ninference-header-content-length: *(\d+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Form:
    """`encode`: question -> headers and body. `decode`: head and body of a 200 -> the output's numbers."""

    path: str
    encode: Callable[[Question], tuple[Mapping[str, str], bytes]]
    decode: Callable[[bytes, bytes], Sequence[float]]

    def request(self, question: Question) -> bytes:
        """The whole request on the wire."""
        headers, body = self.encode(question)
        lines = [f"POST {self.path} HTTP/1.1", "host: localhost", f"content-length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return "\r\n".join([*lines, "", ""]).encode() + body


_JSON = {"content-type": "application/json"}


def plain(path: str, output: str) -> Form:
    """`{"x": [...]}` -> `{output: [...]}`: for servers whose JSON is the user's own."""
    return Form(path, lambda q: (_JSON, orjson.dumps(q)), lambda _, body: orjson.loads(body)[output])


def bento(path: str) -> Form:
    """`{"x": [[...]]}` -> `[[...]]`."""
    return Form(
        path,
        lambda q: (_JSON, orjson.dumps({name: [row] for name, row in q.items()})),
        lambda _, body: orjson.loads(body)[0],
    )


def instances(path: str) -> Form:
    """KServe's first protocol, of one input: `{"instances": [[...]]}` -> `{"predictions": [[...]]}`."""
    return Form(
        path,
        lambda q: (_JSON, orjson.dumps({"instances": list(q.values())})),
        lambda _, body: orjson.loads(body)["predictions"][0],
    )


def oip(path: str, datatype: str) -> Form:
    """The Open Inference Protocol in JSON, one row."""

    def encode(question: Question) -> tuple[Mapping[str, str], bytes]:
        inputs = [
            {"name": name, "shape": [1, len(row)], "datatype": datatype, "data": row} for name, row in question.items()
        ]
        return _JSON, orjson.dumps({"inputs": inputs})

    return Form(path, encode, lambda _, body: orjson.loads(body)["outputs"][0]["data"])


def binary(path: str, datatype: str) -> Form:
    """The Open Inference Protocol with its binary tensor extension in both directions, one row."""
    dtype = {"FP32": np.float32, "INT64": np.int64}[datatype]

    def encode(question: Question) -> tuple[Mapping[str, str], bytes]:
        raw = {name: np.array(row, dtype).tobytes() for name, row in question.items()}
        inputs = [
            {
                "name": name,
                "shape": [1, len(row)],
                "datatype": datatype,
                "parameters": {"binary_data_size": len(raw[name])},
            }
            for name, row in question.items()
        ]
        head = orjson.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}})
        headers = {"content-type": "application/octet-stream", "inference-header-content-length": str(len(head))}
        return headers, head + b"".join(raw.values())

    def decode(head: bytes, body: bytes) -> Sequence[float]:
        length = _HEADER_LENGTH.search(head)
        if length is None:
            raise ValueError(f"the answer is not binary: {head!r}")
        numbers: list[float] = np.frombuffer(body, np.float32, offset=int(length[1])).tolist()
        return numbers

    return Form(path, encode, decode)
