"""Jinja's sandbox, with transformers' settings, and with an account of what operators and calls make."""

import types
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import Any, NoReturn, cast

from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext, Macro, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from headway_runtime.generation.chat.allowed import DICT, LIST, LOOP, STR
from headway_runtime.generation.chat.budget import LETTERS, budget
from headway_runtime.generation.chat.errors import TemplateError
from headway_runtime.generation.chat.filters import check_replace, filters, size, tests
from headway_runtime.generation.chat.rewrite import counted

MAX_NUMBER = 1 << 63
MAX_POWER = 64
MAX_RANGE = 100_000  # as Jinja's own sandbox
MAX_FORMAT = 256  # letters of how a date is written

_NUMBER = (int, float)
_ADDED = (str, list, tuple)
_LARGE = (*_NUMBER, *_ADDED, dict, AbstractSet)  # what operators make more of, or much text
_METHOD = (types.BuiltinMethodType, types.MethodType)  # a text that is `safe` has methods of the other kind


class ChatNamespace(Namespace):
    """transformers': nothing that begins with an underscore."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, *rest = args
        attributes = dict(*rest, **kwargs)
        for name in attributes:
            _check_name(name)
        Namespace.__init__(self, attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


class Generation(Extension):
    """`{% generation %}` marks what the assistant said, for training: here it is what is in it."""

    tags = {"generation"}  # noqa: RUF012  # Jinja's own form

    def parse(self, parser: Parser) -> nodes.Node:
        """See Extension."""
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


class ChatEnvironment(ImmutableSandboxedEnvironment):
    """For all templates. `from_string` raises TemplateSyntaxError and what Python's compiler raises."""

    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "%", "**"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[Generation, LoopControlExtension], optimized=False
        )
        self.filters = cast("Any", filters())
        self.tests = cast("Any", tests())
        self.globals = {
            "dict": _dict,
            "namespace": ChatNamespace,
            "raise_exception": _raise_exception,
            "range": _range,
            "strftime_now": _strftime_now,
        }

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        return counted(super()._parse(source, name, filename))

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Only what is on the list."""
        if isinstance(obj, Namespace):
            return not attr.startswith("_")
        for kind, names in ((str, STR), (list | tuple, LIST), (dict, DICT), (LoopContext, LOOP)):
            if isinstance(obj, kind):
                return attr in names
        return False

    def wrap_str_format(self, value: Any) -> None:
        """A format is no method that may be called, so nothing is wrapped."""

    def getitem(self, obj: Any, argument: Any) -> Any:
        """A key is hashed, and compared."""
        if not isinstance(argument, str | int):
            budget().weigh(argument)
        return super().getitem(obj, argument)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Numbers of 64 bits are calculated with, texts and lists are added, and no more is made of anything."""
        if isinstance(left, _NUMBER) and isinstance(right, _NUMBER):
            if operator == "**" and abs(right) > MAX_POWER:
                raise TemplateError(f"the template raises to the power of {right}; at most {MAX_POWER} is taken")
        elif operator == "+" and isinstance(left, _ADDED) and isinstance(right, _ADDED):
            budget().spend(1 + (len(left) + len(right)) // LETTERS)
        elif (operator == "%" and isinstance(left, str)) or (
            operator != "+" and isinstance(left, _LARGE) and isinstance(right, _LARGE)
        ):
            kinds = f"{type(left).__name__} and {type(right).__name__}"
            raise TemplateError(f"the template uses {operator!r} on {kinds}, which is not taken")
        found = super().call_binop(context, operator, left, right)
        if isinstance(found, int) and abs(found) > MAX_NUMBER:
            raise TemplateError("the template makes a number beyond 64 bits")
        return found

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Macros, what is given to templates, and the methods on the list."""
        if isinstance(obj, Macro | Undefined):
            return super().call(context, obj, *args, **kwargs)
        owner = getattr(obj, "__self__", None)
        if isinstance(owner, str | list | tuple | dict) and isinstance(obj, _METHOD):
            _pay(owner, obj.__name__, args)
        elif any(obj is each for each in _GIVEN) or isinstance(owner, LoopContext):
            budget().spend(1 + len(args) + len(kwargs))
        else:
            raise SecurityError(f"the template calls a {type(obj).__name__}, which is not taken")
        found = super().call(context, obj, *args, **kwargs)
        if isinstance(owner, str):
            budget().weigh(found)
        return found


def _pay(owner: Any, name: str, args: tuple[Any, ...]) -> None:
    """For a method of a text, a list or an object; that it may be called was said when it was read."""
    budget().weigh(args if isinstance(owner, dict) else (owner, args))
    if name == "join":
        budget().spend(sum(map(size, args)) * (1 + len(owner) // LETTERS))
    elif name == "replace" and len(args) >= 2:
        check_replace(owner, str(args[0]), str(args[1]))


def _check_name(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace cannot store {name!r}: names may not begin with an underscore")


def _raise_exception(message: object) -> NoReturn:
    raise TemplateError(str(message))


def _strftime_now(form: str) -> str:
    if len(form) > MAX_FORMAT:
        raise TemplateError(f"the template writes a date in {len(form)} letters; at most {MAX_FORMAT} are taken")
    return datetime.now().strftime(form)  # the pod's clock, as transformers'


def _range(*args: int) -> range:
    found = range(*args)
    if len(found) > MAX_RANGE:
        raise TemplateError(f"the template counts to {len(found)}; at most {MAX_RANGE} is taken")
    return found


def _dict(*args: Any, **kwargs: Any) -> dict[Any, Any]:
    budget().weigh((args, kwargs))
    return dict(*args, **kwargs)


_GIVEN = (_dict, ChatNamespace, _raise_exception, _range, _strftime_now)
