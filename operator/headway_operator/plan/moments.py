"""Times as `status` writes them: RFC 3339, UTC, whole seconds. No clock is read here."""

from datetime import UTC, datetime


def format_time(seconds: float) -> str:
    """`2026-11-29T20:15:00Z` for seconds since the epoch, fractions dropped."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: str) -> float:
    """Seconds since the epoch of what `format_time` or the API server wrote. Raises ValueError for anything else."""
    return datetime.fromisoformat(text).timestamp()
