"""What a tokenizer's file says of decoding, as far as it is one of the usual ways."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer


@dataclass(frozen=True, slots=True)
class Fallback:
    """SentencePiece's way: texts are replaced in each token, `<0xAB>` is a byte, spaces at the beginning are left out.

    As in the files of Llama 2, Mistral and Gemma: Replace, ByteFallback, Fuse, Strip.
    """

    replaced: tuple[tuple[str, str], ...]
    strip: int


def is_byte_level(tokenizer: Tokenizer) -> bool:
    """Whether a token is the bytes that its letters stand for (GPT-2's alphabet), and nothing else is done."""
    return [step["type"] for step in _steps(tokenizer)] == ["ByteLevel"]


def fallback(tokenizer: Tokenizer) -> Fallback | None:
    """How tokens become text, if it is by SentencePiece's way."""
    steps = _steps(tokenizer)
    replaced = []
    while steps and steps[0]["type"] == "Replace" and "String" in steps[0]["pattern"]:
        step = steps.pop(0)
        replaced.append((step["pattern"]["String"], step["content"]))
    match [step["type"] for step in steps]:
        case ["ByteFallback", "Fuse"]:
            return Fallback(tuple(replaced), 0)
        case ["ByteFallback", "Fuse", "Strip"] if steps[2]["content"] == " " and not steps[2]["stop"]:
            return Fallback(tuple(replaced), int(steps[2]["start"]))
    return None


def byte_of(token: str) -> bytes | None:
    """The byte that a token like `<0xAB>` stands for."""
    if len(token) != 6 or not (token.startswith("<0x") and token.endswith(">")):
        return None
    try:
        return bytes.fromhex(token[3:5])
    except ValueError:
        return None


def bytes_of(token: str) -> bytes:
    """The bytes that the letters of a token stand for; an added token, which has other letters, is itself."""
    try:
        return bytes(map(_BYTES.__getitem__, token))
    except KeyError:
        return token.encode()


def _steps(tokenizer: Tokenizer) -> list[Mapping[str, Any]]:
    if tokenizer.decoder is None:
        return []
    decoder = json.loads(tokenizer.decoder.__getstate__())
    return list(decoder["decoders"]) if decoder["type"] == "Sequence" else [decoder]


def _alphabet() -> dict[str, int]:
    """GPT-2's: printable bytes of Latin-1 are themselves, the others are the letters from U+0100 on."""
    printable = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + place): byte for place, byte in enumerate(others)}


_BYTES = _alphabet()
