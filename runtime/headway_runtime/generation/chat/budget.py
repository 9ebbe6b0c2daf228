"""How much a template may do. One unit is about a node of the template, an element of a list, or 16 letters."""

from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from jinja2.utils import Namespace

from headway_runtime.generation.chat.errors import TemplateError

LETTERS = 16  # that cost one unit
BASE = 1_000_000  # units: about a second of a core, and 64 MB at most
EACH = 100  # more for each unit of what is rendered

_HOLDING = (list, tuple, AbstractSet, KeysView, ValuesView, ItemsView)


class Budget:
    """Of one rendering."""

    def __init__(self, given: object) -> None:
        """`given`: what is rendered. Raises TemplateError when it has more than BASE units itself."""
        self._left = BASE
        self.weigh(given)
        self._left = BASE + EACH * (BASE - self._left)

    def spend(self, units: int) -> None:
        """Raises TemplateError when there are not so many."""
        self._left -= units
        if self._left < 0:
            raise TemplateError("the template does too much: more steps, or more text, than any conversation needs")

    def weigh(self, value: object, times: int = 1, indent: int = 0) -> None:
        """Spend what it costs to read a value, or to write it as text, `times` times.

        `indent`: spaces before each element on each level. What is contained twice is counted twice, as it is written.
        """
        if isinstance(value, str):
            self.spend(times * (1 + len(value) // LETTERS))
            return
        most = self._left // times
        spent, depth, level = 0, 0, [value]
        while level:
            below: list[object] = []
            spent += 3 + len(level) * (1 + indent * depth // LETTERS)
            for each in level:
                if isinstance(each, str):
                    spent += len(each) // LETTERS
                elif isinstance(each, _HOLDING):
                    below.extend(each)
                elif isinstance(each, Mapping):
                    below.extend(each.keys())
                    below.extend(each.values())
                elif isinstance(each, Namespace):
                    below.append(_attributes(each))
                if spent + len(below) > most:
                    break
            depth += 1
            level = below
            if spent + len(below) > most:
                break
        self.spend(times * (spent + len(level)))


def _attributes(namespace: Namespace) -> dict[str, Any]:
    return dict(namespace._Namespace__attrs)


_current: ContextVar[Budget] = ContextVar("headway_chat_budget")


def budget() -> Budget:
    """Of the rendering that goes on here."""
    return _current.get()


@contextmanager
def spending(new: Budget) -> Iterator[None]:
    """It is this one's, within."""
    token = _current.set(new)
    try:
        yield
    finally:
        _current.reset(token)
