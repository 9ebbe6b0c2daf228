"""What ends a measurement."""


class BenchError(Exception):
    """It cannot be measured; the message says what, where, and what to do."""
