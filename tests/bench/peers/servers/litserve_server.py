"""LitServe: one API server, one worker, dynamic batching; `fast_queue` is its ZeroMQ transport."""

from typing import Any

import litserve
from fastapi import Request
from served import config, load


class Api(litserve.LitAPI):
    def setup(self, device: str) -> None:
        self.run = load()

    def decode_request(self, request: Request) -> Any:
        return request

    def batch(self, inputs: Any) -> Any:
        return inputs

    def predict(self, x: Any) -> Any:
        return self.run(x) if config()["max_batch"] > 1 else self.run([x])[0]

    def unbatch(self, output: Any) -> Any:
        return output

    def encode_response(self, output: Any) -> Any:
        return output


if __name__ == "__main__":
    settings = config()
    api = Api(max_batch_size=settings["max_batch"], batch_timeout=settings["max_wait"])
    server = litserve.LitServer(api, accelerator="cpu", fast_queue=settings.get("fast_queue", False))
    server.run(
        host="127.0.0.1",
        port=settings["port"],
        num_api_servers=1,
        log_level="warning",
        access_log=False,
        generate_client_file=False,
    )
