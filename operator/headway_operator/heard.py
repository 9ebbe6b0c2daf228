"""What a pod says, in a form that may be passed on to a status, an event or a log. Pure.

The process that serves a model is not believed to be its own master: a model that took it over writes the report and
the last words of its pod. It can lie about that pod alone; how long its words are, and of which characters and numbers,
is bounded here, at the one place where they come in.
"""

from typing import Any, TypeVar

from pydantic import BaseModel
from pydantic_core import from_json

LONGEST_WORDS = 2000  # characters of one text; longer ones are cut
MOST_ITEMS = 1000  # entries of one object or list
MAX_NUMBER = 2**53  # what every reader of JSON knows

M = TypeVar("M", bound=BaseModel)


def read(model: type[M], text: str | bytes) -> M:
    """The value in a JSON text of a pod. Raises ValueError (pydantic's ValidationError is one) when it is none, nests
    without end, holds half a character, infinity, or a number that the API server would not take.
    """
    return model.model_validate(_plain(from_json(text, allow_inf_nan=False)))


def words(text: str) -> str:
    """One line of bounded length: a space where there is no character that is printed, as in commands to a terminal."""
    cut = text[:LONGEST_WORDS]
    return cut if cut.isprintable() else "".join(each if each.isprintable() else " " for each in cut)


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return words(value)
    if isinstance(value, dict | list):
        if len(value) > MOST_ITEMS:
            raise ValueError(f"more than {MOST_ITEMS} entries")
        if isinstance(value, list):
            return [_plain(item) for item in value]
        return {words(key): _plain(item) for key, item in value.items()}
    if isinstance(value, int) and abs(value) > MAX_NUMBER:
        raise ValueError("an integer that other readers of JSON do not know")
    return value
