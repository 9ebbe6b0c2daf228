"""Durations (`2ms`, `1.5s`, `1m30s`), sizes (`256Mi`, `1G`) as people write them in a manifest.

`DURATION_PATTERN` and `SIZE_PATTERN` are what the CRD enforces; the parsers accept exactly those strings.
"""

import re

DURATION_PATTERN = r"^([0-9]{1,6}(\.[0-9]+)?(us|ms|s|m|h))+$"
MAX_DURATION_LENGTH = 20  # with at most six digits before each unit, every duration fits CEL's 64 bits of nanoseconds
SIZE_PATTERN = r"^[0-9]{1,15}(\.[0-9]{1,6})?(k|M|G|T|Ki|Mi|Gi|Ti)?$"

_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_MICROS = {"h": 3_600_000_000, "m": 60_000_000, "s": 1_000_000, "ms": 1_000, "us": 1}
_MOST = 1_000_000  # a number before a unit has at most six digits
_BYTES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(us|ms|s|m|h)")
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?)(k|M|G|T|Ki|Mi|Gi|Ti)?")


def parse_duration(text: str, field: str = "duration") -> float:
    """Seconds of a duration such as `2ms` or `1m30s`.

    Raises ValueError naming `field` when the text is not a duration.
    """
    if not re.fullmatch(DURATION_PATTERN, text):
        raise ValueError(f"{field}: {text!r} is not a duration; write a number and a unit, such as 2ms, 1.5s or 1m30s")
    return sum(float(number) * _SECONDS[unit] for number, unit in _DURATION_PART.findall(text))


def format_duration(seconds: float) -> str:
    """A short spelling of a duration, to a microsecond: `2ms`, `1.5s`, `15m`, `1h30s`.

    `parse_duration` gives the same number of microseconds back.
    """
    micros = round(seconds * 1e6)
    for unit, size in _MICROS.items():
        decimals = 1000 if unit in ("s", "ms") else 1
        if micros >= size and micros * decimals % size == 0 and micros // size < _MOST:
            return (f"{micros / size:.3f}".rstrip("0").rstrip(".") if micros % size else str(micros // size)) + unit
    text = ""
    for unit, size in _MICROS.items():
        count, micros = divmod(micros, size)
        text += f"{count}{unit}" if count else ""
    return text or "0s"


def parse_size(text: str, field: str = "size") -> int:
    """Bytes of a size such as `256Mi` or `1G`.

    Raises ValueError naming `field` when the text is not a size.
    """
    if not (match := _SIZE.fullmatch(text)):
        raise ValueError(f"{field}: {text[:40]!r} is not a size; write a number and a unit, such as 64Mi or 1G")
    return int(float(match[1]) * _BYTES[match[2] or ""])
