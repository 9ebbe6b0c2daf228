"""MLServer: in one process (`parallel_workers: 0`, its faster option here), with adaptive batching."""

import json
import os
import sys
from pathlib import Path

from served import config


def main() -> None:
    settings = config()
    folder = Path(settings["folder"])
    server = {
        "debug": False,
        "host": "127.0.0.1",
        "http_port": settings["port"],
        "grpc_port": settings["port"] + 1,
        "metrics_endpoint": None,
        "parallel_workers": settings.get("parallel_workers", 0),
        "gzip_enabled": False,
    }
    model = {"name": "mlp", "implementation": "mlserver_runtime.Mlp"}
    if settings["max_batch"] > 1:
        model |= {"max_batch_size": settings["max_batch"], "max_batch_time": settings["max_wait"]}
    (folder / "settings.json").write_text(json.dumps(server))
    (folder / "model-settings.json").write_text(json.dumps(model))
    os.environ["PYTHONPATH"] = str(Path(__file__).parent)
    os.chdir(folder)
    command = str(Path(sys.executable).parent / "mlserver")
    os.execv(command, [command, "start", str(folder)])


if __name__ == "__main__":
    main()
