"""What every document of one answer says of itself, and the usage at its end. Pure, but for the clock and a number."""

import time
import uuid
from collections.abc import Iterable
from typing import Any, NamedTuple

from headway_runtime.generation.values import Usage


class Identity(NamedTuple):
    """`created` in seconds since 1970. The revision is OpenAI's `system_fingerprint`."""

    id: str
    created: int
    model: str
    revision: str

    def document(self, kind: str) -> dict[str, Any]:
        """The fields that come first; `kind` is the `object`."""
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.revision,
        }


def identify(*, chat: bool, model: str, revision: str) -> Identity:
    """A new answer."""
    prefix = "chatcmpl" if chat else "cmpl"
    return Identity(f"{prefix}-{uuid.uuid4().hex}", int(time.time()), model, revision)


def usage_of(usages: Iterable[Usage]) -> dict[str, Any]:
    """Of all prompts of a request together."""
    prompt = completion = cached = drafted = accepted = 0
    for each in usages:
        prompt += each.prompt
        completion += each.completion
        cached += each.cached
        drafted += each.drafted
        accepted += each.accepted
    found: dict[str, Any] = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
    if drafted:
        found["completion_tokens_details"] = {
            "accepted_prediction_tokens": accepted,
            "rejected_prediction_tokens": drafted - accepted,
        }
    return found
