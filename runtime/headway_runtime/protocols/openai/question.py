"""What a request for text asks, once its body was checked: the same for both routes. Plain values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from headway_runtime.generation.values import Generate, Tokens


class CallForm(Enum):
    """In which form an answer names the tools that it calls."""

    NONE = auto()  # it calls none: what it says is text
    HERMES = auto()  # <tool_call>{"name", "arguments"}</tool_call>, within text (Nous Hermes, Qwen)
    LLAMA = auto()  # {"name", "parameters"} instead of text, several apart by `;` (Llama 3)
    ARGUMENTS = auto()  # the arguments of one tool that the request names
    LIST = auto()  # [{"name", "arguments"}, ...]: a request that demands a tool


@dataclass(frozen=True, slots=True)
class Chat:
    """Messages, which the model's template makes a prompt of; `tools` and `variables` are the template's."""

    messages: tuple[dict[str, Any], ...]
    tools: tuple[dict[str, Any], ...] = ()
    variables: Mapping[str, Any] = field(default_factory=dict)
    opens_answer: bool = True  # the prompt ends where the assistant begins to speak


@dataclass(frozen=True, slots=True)
class Question:
    """`prompts`: texts, tokens, or the messages of a chat, each answered `generate.n` times. `generate` has no prompt
    yet. `max_tokens`: of each answer; None: as many as there is room for.
    """

    prompts: tuple[str | Tokens | Chat, ...]
    generate: Generate
    max_tokens: int | None
    stream: bool = False
    include_usage: bool = False  # in a stream
    echo: bool = False  # the prompt is part of the text
    calls: CallForm = CallForm.NONE
    tool: str | None = None  # with CallForm.ARGUMENTS: whose arguments

    @property
    def is_chat(self) -> bool:
        """Whether it is answered as a chat completion."""
        return isinstance(self.prompts[0], Chat)
