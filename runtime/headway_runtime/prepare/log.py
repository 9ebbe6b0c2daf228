"""One JSON line per event on standard error: an event name and fields. Never a secret, never the content of an
artifact.
"""

import json
import sys
import time


def event(name: str, **fields: object) -> None:
    """``event("fetch.progress", bytes=1024, total=4096)``."""
    line = {"time": round(time.time(), 3), "event": name, **fields}
    print(json.dumps(line, default=str), file=sys.stderr, flush=True)
