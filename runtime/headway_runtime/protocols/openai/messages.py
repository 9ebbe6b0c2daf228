"""One answer of a chat as it grows: text and calls of tools. Pure, but for the numbers of calls.

Whole and streamed answers are made of the same deltas.
"""

import uuid
from typing import Any

from headway_runtime.generation.values import FinishReason
from headway_runtime.protocols.openai.calls import Calls, calls_of
from headway_runtime.protocols.openai.callscan import Delta
from headway_runtime.protocols.openai.question import CallForm, Chat, Question


def calls_in(question: Question) -> Calls | None:
    """A reader of one answer; None: all that it says is text."""
    chat = question.prompts[0]
    tools = chat.tools if isinstance(chat, Chat) else ()
    names = frozenset(tool["function"]["name"] for tool in tools)
    return calls_of(question.calls, names, question.tool)


def delta_document(delta: Delta) -> dict[str, Any]:
    """The `delta` of a chunk."""
    if delta.content:
        return {"content": delta.content}
    function: dict[str, Any] = {"arguments": delta.arguments}
    call: dict[str, Any] = {"index": delta.call}
    if delta.name is not None:
        function = {"name": delta.name, **function}
        call |= {"id": f"call_{uuid.uuid4().hex[:24]}", "type": "function"}
    return {"tool_calls": [{**call, "function": function}]}


def message_document(deltas: list[Delta]) -> dict[str, Any]:
    """The `message` of a whole answer."""
    content = "".join(delta.content for delta in deltas)
    calls: dict[int, dict[str, str]] = {}
    for delta in deltas:
        if delta.name is not None:
            calls[delta.call] = {"name": delta.name, "arguments": ""}
        if delta.arguments:
            calls[delta.call]["arguments"] += delta.arguments
    message: dict[str, Any] = {"role": "assistant", "content": content if content or not calls else None}
    message["refusal"] = None
    if calls:
        message["tool_calls"] = [
            {"id": f"call_{uuid.uuid4().hex[:24]}", "type": "function", "function": function}
            for function in calls.values()
        ]
    return message


def finish_of(finish: FinishReason, form: CallForm, calls: Calls | None) -> str:
    """OpenAI says `stop` of a call of the tool that the request names."""
    called = calls is not None and calls.called and form is not CallForm.ARGUMENTS
    return "tool_calls" if called and finish is FinishReason.STOP else finish.value
