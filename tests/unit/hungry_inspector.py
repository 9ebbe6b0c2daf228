"""Stands for an inspector that a file has driven out of all bounds: it asks for more memory than it may have."""

from headway_runtime.prepare import isolate
from headway_runtime.prepare.errors import Refusal


def inspect(_: str) -> None:
    try:
        bytearray(isolate.ADDRESS_SPACE)
    except MemoryError:
        raise Refusal("inspector.limits", "memory") from None


if __name__ == "__main__":
    isolate.inspect = inspect  # type: ignore[assignment]
    isolate.main()
