"""Text as it comes, joined, is the tokenizer's own text of all tokens, up to the first stop string."""

import random
from collections.abc import Sequence

import pytest
from headway_runtime.generation.text import TextStream
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from tests.unit.text_tokenizers import BYTES, TOKENIZERS

RUNS = settings(max_examples=100, deadline=None)
UNKNOWN = "\N{REPLACEMENT CHARACTER}"


def streamed(tokenizer: Tokenizer, tokens: Sequence[int], stop: tuple[str, ...] = (), **other: bool) -> list[str]:
    """The pieces, one for each token and what is left."""
    stream = TextStream(tokenizer, stop, **other)
    return [*(stream.push((token,))[0] for token in tokens), stream.flush()]


@pytest.mark.parametrize("name", TOKENIZERS)
@RUNS
@given(data=st.data())
def test_pieces_joined_are_what_the_tokenizer_decodes(name: str, data: st.DataObject) -> None:
    tokenizer = TOKENIZERS[name]
    tokens = data.draw(st.lists(st.integers(0, tokenizer.get_vocab_size() + 1), max_size=30))
    skip = data.draw(st.booleans())
    assert "".join(streamed(tokenizer, tokens, skip_special=skip)) == tokenizer.decode(tokens, skip_special_tokens=skip)


@pytest.mark.parametrize("name", TOKENIZERS)
@RUNS
@given(text=st.text(max_size=40), data=st.data())
def test_no_piece_ends_within_a_character(name: str, text: str, data: st.DataObject) -> None:
    tokenizer = TOKENIZERS[name]
    tokens = tokenizer.encode(text).ids
    whole = tokenizer.decode(tokens)
    pieces = streamed(tokenizer, tokens)
    assert "".join(pieces) == whole
    assert UNKNOWN not in "".join(pieces) or UNKNOWN in whole


@RUNS
@given(
    text=st.text("ab\u00e9", max_size=60),
    stop=st.lists(st.text("ab\u00e9", min_size=1, max_size=5), min_size=1, max_size=4),
    cuts=st.lists(st.integers(1, 4), min_size=60, max_size=60),
)
def test_a_stop_string_ends_the_text_where_it_is_complete_first(text: str, stop: list[str], cuts: list[int]) -> None:
    tokens = BYTES.encode(text).ids
    ends = [(end, -len(each)) for end in range(len(text) + 1) for each in stop if text[:end].endswith(each)]
    wanted = text if not ends else text[: min(ends)[0] + min(ends)[1]]

    stream, pieces, start = TextStream(BYTES, tuple(stop)), [], 0
    for cut in cuts:
        piece, stopped = stream.push(tokens[start : start + cut])
        pieces.append(piece)
        if stopped:
            assert "".join(pieces) == wanted
            assert BYTES.decode(tokens[: start + stream.taken]).endswith(tuple(stop))
            break
        start += cut
    pieces.append(stream.flush())

    assert "".join(pieces) == wanted
    assert stream.stopped == bool(ends)


def test_what_may_begin_a_stop_string_is_held_back_and_no_more() -> None:
    stream = TextStream(BYTES, ("</end>", "\n\nUser"))
    assert [stream.push(BYTES.encode(text).ids) for text in ("a</", "en", "x", "\n", "\n", "\nUs", "b")] == [
        ("a", False),
        ("", False),
        ("</enx", False),
        ("", False),
        ("", False),
        ("\n", False),
        ("\n\nUsb", False),
    ]
    assert stream.push(BYTES.encode("c</end>d").ids) == ("c", True)
    assert stream.push(BYTES.encode("more").ids) == ("", True)
    assert stream.flush() == ""


def test_of_stop_strings_that_are_complete_together_the_longest_counts() -> None:
    for stop in (("b", "ab"), ("ab", "b")):
        assert TextStream(BYTES, stop).push(BYTES.encode("xabc").ids) == ("x", True)


def test_what_was_held_back_comes_when_the_answer_ends_otherwise() -> None:
    stream = TextStream(BYTES, ("</end>",))
    stream.push(BYTES.encode("a</e").ids)
    assert stream.flush() == "</e"
    half = TextStream(BYTES)
    assert half.push(BYTES.encode("\u4f60").ids[:1]) == ("", False)
    assert half.flush() == UNKNOWN


def test_a_long_stop_string_costs_no_more_than_a_short_one() -> None:
    """Work grows with the text, not with the text times the string."""
    stream = TextStream(BYTES, ("a" * 20_000 + "b",))
    tokens = BYTES.encode("a" * 1000).ids
    pushed = [stream.push(tokens)[0] for _ in range(60)]
    assert len("".join(pushed)) == 40_000
    assert stream.flush() == "a" * 20_000


def test_hostile_tokens_cost_a_bounded_time_each() -> None:
    """Bytes that never become a character are not decoded again and again."""
    for tokenizer in TOKENIZERS.values():
        stray = tokenizer.token_to_id("<0x80>") or tokenizer.token_to_id("\u0122") or 0
        pieces = streamed(tokenizer, [stray] * 20_000)
        assert "".join(pieces) == tokenizer.decode([stray] * 20_000)


def test_special_tokens_are_skipped_or_told() -> None:
    for tokenizer in TOKENIZERS.values():
        tokens = [tokenizer.token_to_id("<s>"), *tokenizer.encode("hi").ids, tokenizer.token_to_id("</s>")]
        assert "".join(streamed(tokenizer, tokens)).strip() == "hi"
        assert "</s>" in "".join(streamed(tokenizer, tokens, skip_special=False))


def test_a_random_walk_through_many_tokens_is_decoded_as_a_whole() -> None:
    for tokenizer in TOKENIZERS.values():
        walk = random.Random(0)
        tokens = [walk.randrange(tokenizer.get_vocab_size()) for _ in range(3000)]
        assert "".join(streamed(tokenizer, tokens)) == tokenizer.decode(tokens)
