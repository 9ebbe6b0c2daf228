"""What a pod logs, in words for who watches it on a terminal. Pure."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from headway_api.podconfig import GenerationReport
from headway_api.types import Precision

from headway_runtime.prepare.room import readable

SHOWN = ("maxBatch", "maxWait", "stepTokens")  # of the knobs in force, always; others where they have changed


def structured(line: str) -> dict[str, Any] | None:
    """The fields of a line of a structured log; None for any other line."""
    try:
        fields: Any = json.loads(line)
    except ValueError:
        return None
    return fields if isinstance(fields, dict) and "event" in fields else None


def in_words(fields: Mapping[str, Any]) -> str | None:
    """A logged event; None when it is below a warning, or said elsewhere."""
    told = {name: value for name, value in fields.items() if name not in ("event", "level", "time", "traceback")}
    event, level = fields["event"], fields.get("level", "info")  # the prepare step's lines have no level
    match event:
        case "padding_tried" if fields.get("verdict") in ("Unproven", "Failed"):
            return (
                f"note: only requests of equal {fields['dimension']} share a run; answers are right either way: "
                "docs/padding.md"
            )
        case "knobs_rejected":
            return f"knobs refused, so that those of before stay in force: {fields['error_message']}"
        case "knobs_unknown":
            return f"knobs passed over, because there are none of these names: {', '.join(fields['keys'])}"
        case "program_failed":
            more = f"; {fields['unlogged']} more before that" if fields.get("unlogged") else ""
            return f"warning: the program failed on a request ({fields['error_type']}): its answer says why{more}"
        case "refused":  # the refusal is said as such, at the end
            return None
    if level == "info":
        return None
    traceback = fields.get("traceback", "")
    return (
        f"{level}: {event} " + " ".join(f"{k}={v}" for k, v in told.items()) + (f"\n{traceback}" if traceback else "")
    )


def in_force(effective: Mapping[str, Any], clamped: Sequence[str], before: Mapping[str, Any]) -> str:
    """Knobs in force, those that have changed since `before` among them, and what could not be honoured as asked."""
    now, then = flat(effective), flat(before)
    changed = [name for name in {**now, **then} if now.get(name) != then.get(name) and name not in SHOWN]
    usual = [name for name in SHOWN if name in now or name in then]
    told = [f"{name} {now.get(name, 'unset')}" for name in (*usual, *changed)]
    return "\n  ".join([f"knobs in force: {', '.join(told)}", *clamped])


def room(report: GenerationReport) -> str:
    """For what a pod that generates text has room."""
    sequences = "one sequence" if report.sequences == 1 else f"{report.sequences} sequences"
    size = readable(report.cache_bytes)
    return f"room for {sequences} of {report.max_length} tokens at a time ({size} of keys and values)"


def computing(report: GenerationReport, precision: Precision | None) -> str:
    """What computes, and with which weights."""
    weights = "" if precision is None else f", weights {precision.value}, {readable(report.weights_bytes)}"
    return f"{report.kernels or 'unknown'}{weights}"


def asking(url: str, model: str, *, chats: bool) -> tuple[tuple[str, str], str]:
    """How to ask it for text: a line for OpenAI's client, and a command to paste. `chats`: it has a chat template."""
    client = f'OpenAI(base_url="{url}/v1", api_key="none")   (pip install openai; model="{model}")'
    what = '"messages": [{"role": "user", "content": "Who are you?"}]' if chats else '"prompt": "Once upon a time"'
    path = "/v1/chat/completions" if chats else "/v1/completions"
    body = f'{{"model": "{model}", {what}, "max_tokens": 60, "temperature": 0, "stream": true}}'
    return ("python", client), f"curl -sN {url}{path} -H 'content-type: application/json' -d '{body}'"


def flat(knobs: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Values by path: `queue.capacity`."""
    found: dict[str, Any] = {}
    for name, value in knobs.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {prefix + name: value}
    return found
