"""mosec: a Rust front, one Python worker with dynamic batching. JSON through orjson, unless `json` is `default`."""

import sys
from typing import Any

import orjson
from mosec import Server, Worker
from served import config, load


class Model(Worker):
    def __init__(self) -> None:
        super().__init__()
        self.run = load()

    def forward(self, data: Any) -> Any:
        return self.run(data) if config()["max_batch"] > 1 else self.run([data])[0]


class Quicker(Model):
    def deserialize(self, data: bytes) -> Any:
        return orjson.loads(data)

    def serialize(self, data: Any) -> bytes:
        return orjson.dumps(data)


if __name__ == "__main__":
    settings = config()
    sys.argv[1:] = ["--address", "127.0.0.1", "--port", str(settings["port"]), "--log-level", "warning"]
    sys.argv += ["--timeout", "30000"]
    server = Server()
    wait = max(1, round(settings["max_wait"] * 1000))
    worker = Model if settings.get("json") == "default" else Quicker
    server.append_worker(worker, num=1, max_batch_size=settings["max_batch"], max_wait_time=wait)
    server.run()
