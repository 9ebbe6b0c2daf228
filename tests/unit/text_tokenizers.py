"""Tokenizers of each way that there is to make text of tokens, small ones."""

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

_SPECIAL = [AddedToken("<s>", special=True), AddedToken("</s>", special=True)]


def _byte_level() -> Tokenizer:
    """GPT-2's way: Llama 3, Qwen, SmolLM."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: place for place, letter in enumerate(alphabet)}
    vocabulary |= {"hi": 256, "\u0120h": 257, "\u00c3\u00a9": 258, "\u0120\u0120": 259}
    merges = [("h", "i"), ("\u0120", "h"), ("\u00c3", "\u00a9"), ("\u0120", "\u0120")]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return _with_special(tokenizer)


def _sentence_piece(*, strip: bool) -> Tokenizer:
    """Gemma's way, and with `strip` Llama 2's and Mistral's."""
    pieces = [
        "<unk>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        "\u2581",
        *"abcdehilortw,",
        "hi",
        "\u2581\u2581",
        "\u2581h",  # nothing is merged to it
    ]
    tokenizer = Tokenizer(
        models.BPE({piece: place for place, piece in enumerate(pieces)}, [("h", "i")], byte_fallback=True)
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always" if strip else "never", split=False)
    steps = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if strip else steps)
    return _with_special(tokenizer)


def _metaspace() -> Tokenizer:
    """T5's way, which is none of those that are read from the file."""
    pieces = ["<unk>", "\u2581", *"abcdehilortw,", "hi", "\u2581hi"]
    tokenizer = Tokenizer(models.Unigram([(piece, -1.0) for piece in pieces], 0))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    return _with_special(tokenizer)


def _with_special(tokenizer: Tokenizer) -> Tokenizer:
    tokenizer.add_special_tokens(_SPECIAL)
    tokenizer.add_tokens(["<tool call>"])
    return tokenizer


BYTES = _byte_level()
TOKENIZERS = {
    "byte-level": BYTES,
    "gemma": _sentence_piece(strip=False),
    "llama2": _sentence_piece(strip=True),
    "metaspace": _metaspace(),
}
