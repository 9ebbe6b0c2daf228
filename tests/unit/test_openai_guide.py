"""docs/protocols.md says of text what the code does: every field, bound, header and form."""

import ast
import re
from pathlib import Path

import pytest
from headway_runtime.protocols.grpc import texts
from headway_runtime.protocols.openai import answering, chat, completions, errors, formats, sampling

GUIDE = Path("docs/protocols.md").read_text()
TEXT = GUIDE.partition("\n## Text, as OpenAI's clients ask\n")[2].partition("\n## ")[0]
FIELDS = TEXT.partition("\n### ")[0]
GRPC = GUIDE.partition("\n## Text over gRPC\n")[2]


def table(title: str) -> set[str]:
    """The names in the first column of a table."""
    rows = FIELDS.partition(f"| {title} | |\n|---|---|\n")[2].partition("\n\n")[0].splitlines()
    return {name for row in rows for name in re.findall(r"`(\w+)`", row.split(" | ")[0])}


def test_every_field_that_is_read_stands_in_a_table_and_no_other() -> None:
    both = table("both")
    assert both | table("completions") == completions.KNOWN - {"model"}
    assert both | table("chat") == chat.KNOWN - {"model"}
    assert both == completions.KNOWN & chat.KNOWN - {"model", "logprobs", "max_tokens"}


def test_every_field_that_is_refused_is_named() -> None:
    refused = re.search(r"So are (.*?)\.\n", FIELDS, re.DOTALL)
    assert refused is not None
    wrong_route = {"messages", "prompt", "max_completion_tokens"}
    assert set(re.findall(r"`(\w+)`", refused[1])) == (completions.REFUSED | chat.REFUSED).keys() - wrong_route


@pytest.mark.parametrize(
    "said",
    [
        f"| `max_tokens` | {completions.USUAL_TOKENS} without it |",
        f"at most {completions.MAX_PROMPTS})",
        f"| `logprobs` | 0 to {sampling.MAX_TOP} of the likeliest tokens |",
        f"at most {sampling.MAX_STOPS} texts in `stop`",
        f"after {answering.PING_SECONDS:.0f} s of silence",
        f"when {answering.MAX_UNREAD >> 20} MiB waits for it ({errors.SlowReaderError.status} in the metrics)",
        "`context_length_exceeded`",
        "`model_not_found`",
        "`rate_limit_exceeded`",
        *(f"`{role}`" for role in chat.ROLES),
        *(f"`{name}`" for name in formats.FORMATS),
    ],
)
def test_what_the_guide_says_of_text_is_so(said: str) -> None:
    assert said in TEXT


def test_the_example_compiles() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    ast.parse(code)


def test_the_inputs_over_grpc_are_those_that_are_read() -> None:
    for name in (*texts._INPUTS, texts.OUTPUT, texts._FINAL):
        assert f"`{name}`" in GRPC
