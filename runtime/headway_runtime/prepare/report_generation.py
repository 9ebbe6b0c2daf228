"""What ``headway inspect`` says of a decoder: what its cache takes, how far it sees, and what its record holds."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from headway_runtime.prepare import decoding
from headway_runtime.prepare.decoder import CONTRACT

WHY_NO_BATCH = "it generates text: sequences join and leave between two runs"
MOST_ENDS = 8


def facts(document: Mapping[str, Any]) -> dict[str, Any] | None:
    """The key ``generation`` of a program in the JSON report; None for a program that is no decoder."""
    if not decoding.is_decoder(document):
        return None
    geometry, recorded = decoding.read(document)
    template = recorded.chat_template
    return {
        "contract": CONTRACT,
        "layers": document["decoder"]["layers"],
        "vocabulary": geometry.vocabulary,
        "cacheBytesPerToken": {"float32": geometry.bytes_per_token(4), "bfloat16": geometry.bytes_per_token(2)},
        "context": recorded.context,
        "end": list(recorded.end),
        "chatTemplateBytes": None if template is None else len(template.encode()),
        "defaults": dict(recorded.defaults),
        "goldenPrompts": len(recorded.golden),
        "goldenTokens": sum(len(golden.tokens) for golden in recorded.golden),
    }


def lines(found: Mapping[str, Any]) -> Iterator[str]:
    """The same to read."""
    yield f"generates text ({found['contract']})"
    kinds = Counter((i["heads"], i["kvHeads"], i["headDim"], i["window"]) for i in found["layers"])
    for (heads, kv_heads, size, window), count in kinds.items():
        sees = f"sees the last {window:,} tokens" if window else "sees all tokens"
        plural = "layers" if count > 1 else "layer"
        yield f"  {count} {plural}: {heads} heads of {size}, {kv_heads} of keys and values; {sees}"
    bytes_ = found["cacheBytesPerToken"]
    yield f"  cache: {bytes_['float32']:,} bytes a token in float32, {bytes_['bfloat16']:,} in bfloat16"
    yield f"  vocabulary: {found['vocabulary']:,} tokens; context: {found['context']:,} tokens"
    ends = ", ".join(map(str, found["end"][:MOST_ENDS])) or "none of its own"
    yield f"  an answer ends at token {ends}{', …' if len(found['end']) > MOST_ENDS else ''}"
    if found["chatTemplateBytes"] is not None:
        yield f"  chat template: {found['chatTemplateBytes']:,} bytes"
    if found["defaults"]:
        yield f"  sampling: {', '.join(f'{name} = {value:g}' for name, value in found['defaults'].items())}"
    if found["goldenPrompts"]:
        yield f"  golden prompts: {found['goldenPrompts']}, continued with {found['goldenTokens']:,} tokens"
