"""Jinja's filters, each paid for, and those that the rewritten template uses."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from types import GeneratorType
from typing import Any, cast

from jinja2 import pass_context
from jinja2.filters import FILTERS as FILTERS_OF_JINJA
from jinja2.runtime import Context
from jinja2.tests import TESTS as TESTS_OF_JINJA

from headway_runtime.generation.chat.allowed import COMPARING, FILTERS, READING, SHALLOW
from headway_runtime.generation.chat.budget import LETTERS, budget
from headway_runtime.generation.chat.errors import TemplateError
from headway_runtime.generation.chat.rewrite import COPIED, STEP, TEXT, TURNS

MANY = 16  # times that an element is compared in sorting
MAX_INDENT = 64
MAX_DIGITS = 64

Function = Callable[..., Any]

_FILTERS = cast("dict[str, Function]", FILTERS_OF_JINJA)
_TESTS = cast("dict[str, Function]", TESTS_OF_JINJA)


def tests() -> dict[str, Function]:
    """Jinja's, by name."""
    return {name: _weighed(plain) if name in READING else plain for name, plain in _TESTS.items()}


def filters() -> dict[str, Function]:
    """Those that may be used, by name."""
    paid = {name: _paid(name, _FILTERS[name]) for name in FILTERS - {"tojson"}}
    return paid | {"tojson": _to_json, STEP: _step, TURNS: _turns, TEXT: _text, COPIED: _copied}


@pass_context
def _step(_: Context, nothing: str, weight: int) -> str:
    budget().spend(weight)
    return nothing


@pass_context
def _turns(_: Context, value: Any, weight: int) -> Any:
    return Turns(value, weight)


@pass_context
def _text(_: Context, value: Any) -> Any:
    budget().weigh(value)
    return value


@pass_context
def _copied(_: Context, value: Any) -> Any:
    budget().spend(size(value))
    return value


def size(value: object) -> int:
    """Units that a copy costs: a list's elements are not copied."""
    return 1 + len(value) // LETTERS if isinstance(value, Sized) else 1


@pass_context
def _to_json(
    _: Context,
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """transformers' way: no character is escaped for HTML."""
    budget().weigh(value, times=MANY if sort_keys else 2, indent=_indent(indent or 0))
    found = json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    budget().weigh(found)
    return found


class Turns:
    """What a loop goes through; each turn is paid for."""

    def __init__(self, values: Iterable[Any], weight: int) -> None:
        self._values, self._weight = values, weight

    def __iter__(self) -> Iterator[Any]:
        spend = budget().spend
        for value in self._values:
            spend(self._weight)
            yield value

    def __len__(self) -> int:
        return len(self._values) if isinstance(self._values, Sized) else _no_length()


def _no_length() -> int:
    raise TypeError("it has no length")  # the loop counts them, then


def _weighed(plain: Function) -> Function:
    def weighed(value: Any, *args: Any) -> Any:
        budget().weigh((value, args))
        return plain(value, *args)

    return weighed


def _paid(name: str, plain: Function) -> Function:
    passed = _passed(plain)

    @pass_context
    def paid(context: Context, value: Any, *args: Any, **kwargs: Any) -> Any:
        value = list(value) if isinstance(value, GeneratorType) else value
        if name in SHALLOW:
            budget().spend(size(value))
        else:
            budget().weigh((value, args, kwargs), times=MANY if name in COMPARING else 1)
            _check(name, value, args, kwargs)
        result = plain(*passed(context), value, *args, **kwargs)
        if isinstance(result, GeneratorType):
            return _one_by_one(result)
        if isinstance(result, str):
            budget().weigh(result)
        return result

    return paid


def _passed(plain: Function) -> Callable[[Context], tuple[Any, ...]]:
    wanted = getattr(getattr(plain, "jinja_pass_arg", None), "name", None)
    if wanted == "context":
        return lambda context: (context,)
    if wanted == "eval_context":
        return lambda context: (context.eval_ctx,)
    return (lambda context: (context.environment,)) if wanted == "environment" else (lambda _: ())


def _check(name: str, value: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Refuse what would be large before it is made."""
    if name == "replace" and len(args) >= 2:
        check_replace(str(value), str(args[0]), str(args[1]))
    elif name == "indent":
        width = args[0] if args else kwargs.get("width", 4)
        budget().spend((str(value).count("\n") + 1) * (_indent(width) // LETTERS + 1))
    elif name == "join":
        between = args[0] if args else kwargs.get("d", "")
        budget().spend(len(value) * (len(str(between)) // LETTERS + 1) if isinstance(value, Sized) else 0)
    elif name == "round" and abs(args[0] if args else kwargs.get("precision", 0)) > MAX_DIGITS:
        raise TemplateError(f"the template rounds to more than {MAX_DIGITS} digits")
    elif name == "sum" and (len(args) > 1 or "start" in kwargs):
        raise TemplateError("the template sums up from a start of its own, which is not taken")


def check_replace(text: str, old: str, new: str) -> None:
    """Pay for the text that a replacement makes."""
    budget().spend((text.count(old) * len(new) + len(text)) // LETTERS)


def _indent(width: int | str) -> int:
    size = len(width) if isinstance(width, str) else width
    if size > MAX_INDENT:
        raise TemplateError(f"the template indents by {size}; at most {MAX_INDENT} are taken")
    return size


def _one_by_one(values: Iterator[Any]) -> Iterator[Any]:
    spend = budget().spend
    for value in values:
        spend(4)
        yield value
