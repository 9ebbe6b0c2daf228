"""Asks a server for many streams of text, and reads them to their ends: `stream_reader.py PORT PATH MODEL STREAMS`.

A process of its own, which imports nothing that takes long.
"""

import json
import selectors
import socket
import sys


def read(port: int, path: str, model: str, streams: int) -> None:
    """One connection for each."""
    content = json.dumps({"model": model, "prompt": [5], "stream": True, "max_tokens": 200}).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: pod\r\ncontent-type: application/json\r\ncontent-length: {len(content)}\r\n"
    selector = selectors.DefaultSelector()
    for _ in range(streams):
        connection = socket.create_connection(("127.0.0.1", port))
        connection.sendall(head.encode() + b"\r\n" + content)
        selector.register(connection, selectors.EVENT_READ, connection)
    while selector.get_map():
        for key, _ in selector.select():
            data = key.data.recv(65536)
            if not data or data.endswith(b"0\r\n\r\n"):
                selector.unregister(key.data)
                key.data.close()


if __name__ == "__main__":
    read(int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]))
