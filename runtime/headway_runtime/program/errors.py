"""Why a prepared program cannot be loaded, and why a request does not fit it.

ProgramError    loading failed, as a condition of the ModelDeployment
ShapeError      the shapes of a request do not fit the inputs (a client's error, 400)
OutputError     the program answered with another tensor than it declares
"""


class ProgramError(Exception):
    """``condition`` and ``reason`` name a status condition, ``field`` the field path of the spec that is at fault."""

    def __init__(self, condition: str, reason: str, message: str, *, field: str = "spec.artifact.uri") -> None:
        super().__init__(message)
        self.condition = condition
        self.reason = reason
        self.message = message
        self.field = field


class ShapeError(ValueError):
    """``input`` is the input's name, ``axis`` the offending axis or None when the number of axes is wrong."""

    def __init__(self, message: str, *, input_name: str, axis: int | None) -> None:
        super().__init__(message)
        self.input = input_name
        self.axis = axis


class OutputError(RuntimeError):
    """An output has another element type or number of axes than declared."""
