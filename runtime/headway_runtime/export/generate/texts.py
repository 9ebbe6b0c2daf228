"""What an archive needs of a tokenizer of transformers: its JSON, the chat template, the texts of two tokens."""

from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer

from headway_runtime.export.errors import ExportError
from headway_runtime.prepare.beside import record
from headway_runtime.prepare.container import strict_json
from headway_runtime.prepare.errors import Refusal


@dataclass(frozen=True, slots=True)
class Texts:
    """`tokenizer`: a `tokenizer.json`. `tokens`: their number, all of which are below it. `chat_template`: Jinja, or
    None. `begin` and `end`: `bos_token` and `eos_token`, or empty.
    """

    tokenizer: bytes
    tokens: int
    chat_template: str | None
    begin: str
    end: str


def of(tokenizer: Any) -> Texts:
    """Read a tokenizer of transformers. Raises ExportError where a pod could not use it."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise ExportError(
            f"a pod reads a tokenizer.json (of the library tokenizers), which {type(tokenizer).__name__} has not; "
            "save one with AutoTokenizer.from_pretrained(…).save_pretrained(FOLDER)"
        )
    data = backend.to_str().encode()
    if len(data) > record.MAX_TOKENIZER:
        raise ExportError(f"the tokenizer has {len(data):,} bytes; at most {record.MAX_TOKENIZER:,} are allowed")
    try:
        strict_json.parse(data)
    except Refusal as refusal:
        raise ExportError(f"the tokenizer is no JSON that a pod reads: {refusal.detail or refusal.message}") from None
    tokens = 1 + max(backend.get_vocab(with_added_tokens=True).values(), default=-1)
    return Texts(data, tokens, _template(tokenizer), tokenizer.bos_token or "", tokenizer.eos_token or "")


def check_same(main: Texts, draft: Texts) -> None:
    """Refuse a draft whose tokens are others. Raises ExportError naming one."""
    own, other = (Tokenizer.from_buffer(texts.tokenizer).get_vocab(with_added_tokens=True) for texts in (main, draft))
    different = sorted(dict(own.items() ^ other.items()))
    if different:
        token = different[0]
        raise ExportError(
            f"the draft has other tokens, so that what it proposes would be other text: {token!r} is number "
            f"{own.get(token)} and {other.get(token)} there; take a draft of the same family"
        )


def _template(tokenizer: Any) -> str | None:
    """The one template, or that of several that is called `default`."""
    found = tokenizer.chat_template
    if isinstance(found, dict):
        if "default" not in found:
            raise ExportError(f"the tokenizer has the chat templates {', '.join(found)}, and none called default")
        found = found["default"]
    return found or None
