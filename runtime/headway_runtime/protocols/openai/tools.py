"""The tools of a chat: which of them may, must or must not be called, and in which form the model calls one. Pure.

A model calls tools in the form that its chat template shows them in. Where a request demands a call, the answer is
constrained to JSON instead: the arguments of the one that is named, or a list of calls.
"""

import re
from dataclasses import dataclass
from typing import Any

from headway_runtime.generation.values import Constraint
from headway_runtime.protocols.openai.errors import ParameterError
from headway_runtime.protocols.openai.fields import Fields, shown
from headway_runtime.protocols.openai.formats import schema_constraint
from headway_runtime.protocols.openai.question import CallForm

TOOLS = frozenset({"tools", "tool_choice", "parallel_tool_calls"})
MAX_TOOLS = 128
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_CHOICES = "none, auto, required, or an object that names a function"
_SHARED = ("$defs", "definitions")  # of a schema: what its references are to
_ANY_OBJECT = {"type": "object"}


@dataclass(frozen=True, slots=True)
class Tools:
    """`shown`: what the template gets. `constraint`: of the answer, where a call is demanded; `name`: of whom."""

    shown: tuple[dict[str, Any], ...] = ()
    form: CallForm = CallForm.NONE
    constraint: Constraint | None = None
    name: str | None = None


def tools_of(fields: Fields, template: str) -> Tools:
    """Raises ParameterError."""
    tools = _tools(fields)
    choice, several = fields.raw("tool_choice"), fields.boolean("parallel_tool_calls", True)
    if choice not in (None, "none", "auto") and not tools:
        raise ParameterError("tool_choice", f"{shown(choice)} needs 'tools'")
    match choice:
        case None | "auto":
            return Tools(tuple(tools), form_of(template) if tools else CallForm.NONE)
        case "none":
            return Tools()
        case "required":
            schema = _list_schema([tool["function"] for tool in tools], several=several)
            return Tools(tuple(tools), CallForm.LIST, schema_constraint(schema, "tools"))
        case {"type": "function", "function": {"name": str(name)}}:
            for at, tool in enumerate(tools):
                if tool["function"]["name"] == name:
                    parameters = tool["function"].get("parameters") or _ANY_OBJECT
                    constraint = schema_constraint(parameters, f"tools.{at}.function.parameters")
                    return Tools(tuple(tools), CallForm.ARGUMENTS, constraint, name)
            raise ParameterError("tool_choice.function.name", f"{shown(name)} is none of the tools")
        case _:
            raise fields.error("tool_choice", _CHOICES)


def form_of(template: str) -> CallForm:
    """The form that a chat template teaches; NONE: none that is known here."""
    if "<tool_call>" in template:
        return CallForm.HERMES
    if "tool" in template and '"parameters"' in template.replace("\\", ""):
        return CallForm.LLAMA
    return CallForm.NONE


def _tools(fields: Fields) -> list[dict[str, Any]]:
    given = fields.list("tools") or []
    if len(given) > MAX_TOOLS:
        raise ParameterError("tools", f"has {len(given)} tools; at most {MAX_TOOLS}")
    for at, tool in enumerate(given):
        path = f"tools.{at}"
        if not isinstance(tool, dict) or tool.get("type") != "function" or not isinstance(tool.get("function"), dict):
            raise ParameterError(path, "must be of type function, with a function")
        function = Fields(tool["function"], f"{path}.function")
        name = function.raw("name")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise function.error("name", "a name of at most 128 letters, digits, and any of _ . -")
        function.text("description")
        parameters = function.object("parameters")
        if parameters is not None:
            for key in _SHARED:
                parameters.object(key)
    return given


def _list_schema(functions: list[dict[str, Any]], *, several: bool) -> dict[str, Any]:
    """A list of calls. Definitions of the parameters move to its top, where references look for them."""
    shared: dict[str, dict[str, Any]] = {}
    calls = []
    for function in functions:
        parameters = dict(function.get("parameters") or _ANY_OBJECT)
        for key in _SHARED:
            for name, definition in (parameters.pop(key, None) or {}).items():
                if shared.setdefault(key, {}).setdefault(name, definition) != definition:
                    raise ParameterError("tools", f"two tools define {key}/{name} differently; rename one of them")
        calls.append(
            {
                "type": "object",
                "properties": {"name": {"const": function["name"]}, "arguments": parameters},
                "required": ["name", "arguments"],
                "additionalProperties": False,
            }
        )
    items = calls[0] if len(calls) == 1 else {"anyOf": calls}
    return {"type": "array", "minItems": 1, **({} if several else {"maxItems": 1}), "items": items, **shared}
