"""What TorchServe runs: it calls `handle` with a batch of requests. A function is the cheapest form."""

import json
from pathlib import Path
from typing import Any

from served import config, load

_run: Any = None


def handle(data: Any, context: Any) -> Any:
    """Loads on the call without data, which TorchServe makes first. Bodies arrive decoded, or as bytes."""
    global _run
    if _run is None:
        import os

        os.environ["HEADWAY_PEER"] = Path(context.system_properties["model_dir"], "peer.json").read_text()
        config.cache_clear()
        _run = load()
    if data is None:
        return None
    bodies = (row.get("body") or row.get("data") for row in data)
    return _run([body if isinstance(body, dict) else json.loads(body) for body in bodies])
