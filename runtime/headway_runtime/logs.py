"""Structured logs: one JSON object per line on standard error, with an event name and its fields.

Lifecycle events and failures only; nothing is logged per request, and no input, output or secret ever is.
"""

import logging
import sys
import time
from typing import Any

import orjson

_LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_logger = logging.getLogger("headway")

SELDOM_SECONDS = 1.0
_seldom: dict[str, tuple[float, int]] = {}


class JsonFormatter(logging.Formatter):
    """Renders a record as one JSON object; records of libraries get the event `log`."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, without its end."""
        fields: dict[str, Any] | None = getattr(record, "fields", None)
        event = "log" if fields is None else record.getMessage()
        if fields is None:
            fields = {"logger": record.name, "message": record.getMessage()}
        line = {"time": _timestamp(record.created), "level": record.levelname.lower(), "event": event, **fields}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()


def configure() -> None:
    """Send every log of this process through the formatter. Libraries speak from warnings on, and uvicorn from errors
    on: it warns of every malformed request, so that anybody could fill the log.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    _logger.setLevel(logging.INFO)
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)


def log(event: str, *, level: str = "info", error: BaseException | None = None, **fields: Any) -> None:
    """Log one event. With `error` its traceback goes along."""
    exc_info = (type(error), error, error.__traceback__) if error is not None else None
    _logger.log(_LEVELS[level], event, extra={"fields": fields}, exc_info=exc_info)


def log_seldom(event: str, **fields: Any) -> None:
    """Log a warning that requests can cause, at most once a second; `unlogged` counts those left out before it."""
    now = time.monotonic()
    last, unlogged = _seldom.get(event, (-SELDOM_SECONDS, 0))
    if now - last < SELDOM_SECONDS:
        _seldom[event] = (last, unlogged + 1)
        return
    _seldom[event] = (now, 0)
    log(event, level="warning", unlogged=unlogged, **fields)


def _timestamp(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{int(seconds * 1000) % 1000:03d}Z"
