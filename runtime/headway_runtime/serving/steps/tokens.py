"""The archive's `tokenizer.json`, as a stranger's: read in a bounded time, and nothing that it raises gets further.

The library (`tokenizers`, in Rust) lets other threads run while it works. Its own threads stay off: the pod's CPU limit
is for the program. A file may ask for cutting and filling up by itself; that is left to the step.
"""

import os
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway_runtime.errors import FatalError, first_line

LOAD_SECONDS = 60.0
_PATTERN = re.compile(rb'"%s"' % b"".join(rb"(?:%c|\\u00%02x)" % (letter, letter) for letter in b"Regex"))
"""The key of a pattern, its letters as they are or as JSON's escapes."""
_PADDING_TOKENS = ("[PAD]", "<pad>", "<|pad|>", "<|endoftext|>")


@dataclass(frozen=True, slots=True)
class Tokens:
    """One text: its ids and type ids, special tokens included; `cut` when it was longer."""

    ids: list[int]
    types: list[int]
    cut: bool = False


class Tokenizer:
    """Texts to tokens. Safe to use from several threads."""

    def __init__(self, data: bytes) -> None:
        """Raises FatalError `UnsupportedProgram`."""
        self._tokenizer = _library(data)
        self._from = (self._tokenizer.truncation or {}).get("direction", "right")
        self.filler = _filler(self._tokenizer)
        self.linear = _PATTERN.search(data) is None
        """Whether no pattern of the file's author is tried on a text, which could take for ever on a short one."""
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()

    @property
    def special(self) -> int:
        """Tokens that are added to every text."""
        return int(self._tokenizer.num_special_tokens_to_add(False))

    @property
    def size(self) -> int:
        """Ids are below this number."""
        return int(self._tokenizer.get_vocab_size())

    def cut_at(self, length: int) -> None:
        """From now on, texts have at most so many tokens; they are cut at the end that the file names."""
        self._tokenizer.enable_truncation(length, direction=self._from)

    def encode(self, texts: Sequence[str]) -> list[Tokens]:
        """Tokens of each text. Raises whatever the library does, also what is no Exception (a panic)."""
        return [
            Tokens(found.ids, found.type_ids, bool(found.overflowing))
            for found in self._tokenizer.encode_batch_fast(list(texts))
        ]


def open_tokenizer(file: Path) -> Tokenizer:
    """The tokenizer of a prepared directory. Raises FatalError `UnsupportedProgram`."""
    return Tokenizer(_read(file))


def open_library(file: Path) -> Any:
    """The same as the library has it (`tokenizers.Tokenizer`), which neither cuts nor fills up. Raises FatalError
    `UnsupportedProgram`.
    """
    tokenizer = _library(_read(file))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise _failed(f"the tokenizer cannot be read: {error.strerror}") from error


def _library(data: bytes) -> Any:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # read by the library whenever it encodes
    return _within(LOAD_SECONDS, data)


def _within(seconds: float, data: bytes) -> Any:
    """Read the file in a thread that may be left behind. Where the library holds the interpreter meanwhile, the
    liveness check is what ends it.
    """
    from tokenizers import Tokenizer as Library

    found: list[Any] = []

    def read() -> None:
        try:
            found.append(Library.from_str(data.decode()))
        except BaseException as error:  # a panic is no Exception
            found.append(error)

    thread = threading.Thread(target=read, name="headway-tokenizer", daemon=True)
    thread.start()
    thread.join(seconds)
    if not found:
        raise _failed(f"reading the tokenizer took more than {seconds:g} s")
    if isinstance(found[0], BaseException):
        first = first_line(found[0], 300)
        raise _failed(f"the tokenizer of the artifact cannot be used: {first}")
    return found[0]


def _filler(tokenizer: Any) -> int:
    """The id that fills up shorter texts."""
    own = tokenizer.padding
    if own is not None:
        return int(own["pad_id"])
    return next((found for token in _PADDING_TOKENS if (found := tokenizer.token_to_id(token)) is not None), 0)


def _failed(message: str) -> FatalError:
    return FatalError("UnsupportedProgram", message, condition="ArtifactVerified", field="spec.artifact.uri")
