"""Answers of random models match what they must, end when they are complete, and are the same with speculation."""

import json
import re

import numpy as np
import pytest
import torch
from headway_runtime.errors import InvalidRequestError
from headway_runtime.generation.constraints import Constraints
from headway_runtime.generation.sampling import Ask, Sampler
from headway_runtime.generation.values import Constraint, ConstraintKind, Sampling, Tokens
from jsonschema import validate

from tests.unit.sampling_models import asked, one
from tests.unit.text_tokenizers import TOKENIZERS

BYTES = TOKENIZERS["byte-level"]
END = BYTES.token_to_id("</s>")
VOCABULARY = BYTES.get_vocab_size() + 9  # a program may have more logits than there are tokens
CONSTRAINTS = Constraints(BYTES, vocabulary=VOCABULARY, end=[END])
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "size": {"type": "integer", "minimum": -5, "maximum": 120},
        "kind": {"enum": ["a", "bé", None]},
        "tags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3},
    },
    "required": ["name", "size", "kind", "tags"],
    "additionalProperties": False,
}
GRAMMAR = 'start: "hi" (" " NAME)+ "."\nNAME: /[a-z]{2,4}/'
KINDS = {
    "schema": Constraint(ConstraintKind.JSON_SCHEMA, json.dumps(SCHEMA)),
    "regex": Constraint(ConstraintKind.REGEX, r"([0-9]{3}-[a-f]+é){1,3}"),
    "grammar": Constraint(ConstraintKind.GRAMMAR, GRAMMAR),
}


def matches(kind: str, text: str) -> bool:
    if kind == "schema":
        validate(json.loads(text), SCHEMA)
        return True
    if kind == "regex":
        return re.fullmatch(r"([0-9]{3}-[a-f]+é){1,3}", text) is not None
    return re.fullmatch(r"hi( [a-z]{2,4})+\.", text) is not None


def logits_after(tokens: Tokens, seed: int) -> torch.Tensor:
    """Random, by all tokens before; the end is rather likely."""
    row = np.random.default_rng([seed, *tokens]).standard_normal(VOCABULARY).astype(np.float32) * 2
    row[END] += 3
    return torch.from_numpy(row)


def answer(sampling: Sampling, seed: int, sampler: Sampler | None = None, most: int = 400) -> tuple[Tokens, bool]:
    sampler = sampler or Sampler(VOCABULARY, CONSTRAINTS)
    state = sampler.open(asked(sampling), 0)
    tokens: Tokens = ()
    while not state.ended and len(tokens) < most:
        tokens += one(sampler, logits_after(tokens, seed), state).tokens
    return tokens, state.ended


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "way", [Sampling(temperature=0), Sampling(seed=1), Sampling(seed=1, top_k=3, top_p=0.9)], ids=str
)
def test_an_answer_matches_and_ends_by_itself(kind: str, way: Sampling) -> None:
    complete = 0
    for seed in range(6):
        sampling = Sampling(
            temperature=way.temperature, top_k=way.top_k, top_p=way.top_p, seed=seed, constraint=KINDS[kind]
        )
        tokens, ended = answer(sampling, seed)
        if ended:
            complete += 1
            assert matches(kind, BYTES.decode(list(tokens)))
    assert complete >= 3


def test_any_object_is_one() -> None:
    sampling = Sampling(
        seed=0, constraint=Constraint(ConstraintKind.JSON_OBJECT), logit_bias={BYTES.token_to_id('"'): 6.0}
    )
    for seed in range(4):
        tokens, ended = answer(sampling, seed, most=2000)
        if ended:
            assert isinstance(json.loads(BYTES.decode(list(tokens))), dict)
        else:
            assert BYTES.decode(list(tokens)).startswith("{")


def test_spaces_do_not_go_on_for_ever() -> None:
    space = BYTES.encode(" ").ids[0]
    sampling = Sampling(
        temperature=0,
        logit_bias={space: 100.0},
        constraint=Constraint(
            ConstraintKind.JSON_SCHEMA, '{"type": "array", "items": {"type": "boolean"}, "maxItems": 2}'
        ),
    )
    tokens, ended = answer(sampling, 0)
    assert ended
    assert isinstance(json.loads(BYTES.decode(list(tokens))), list)


def test_the_end_is_allowed_where_the_answer_is_complete_and_only_there() -> None:
    sampler = Sampler(VOCABULARY, CONSTRAINTS)
    only_end = torch.zeros(VOCABULARY)
    only_end[END] = 50
    state = sampler.open(asked(Sampling(temperature=0, constraint=Constraint(ConstraintKind.REGEX, "ab*"))), 0)
    assert one(sampler, only_end, state).tokens == tuple(BYTES.encode("a").ids)
    assert not state.ended
    assert one(sampler, only_end, state).tokens == (END,)
    assert state.ended
    assert one(sampler, only_end, state).tokens == ()


def test_too_short_an_answer_ends_all_the_same_where_nothing_else_may_come() -> None:
    sampler = Sampler(VOCABULARY, CONSTRAINTS)
    sampling = Sampling(temperature=0, constraint=Constraint(ConstraintKind.REGEX, "a|ab"))
    state = sampler.open(asked(sampling, stop_tokens=frozenset({END}), min_tokens=5), 0)
    made = [one(sampler, torch.zeros(VOCABULARY), state).tokens for _ in range(2)]
    assert made == [tuple(BYTES.encode("a").ids), tuple(BYTES.encode("b").ids)]
    assert state.ended


@pytest.mark.parametrize("kind", KINDS)
def test_drafts_leave_a_constrained_answer_as_it_is(kind: str) -> None:
    sampling = Sampling(seed=5, constraint=KINDS[kind])
    wanted, _ = answer(sampling, 5)
    sampler = Sampler(VOCABULARY, CONSTRAINTS)
    state = sampler.open(asked(sampling), 0)
    tokens: Tokens = ()
    dice, accepted = np.random.default_rng(0), 0
    while not state.ended and len(tokens) < 400:
        drafts = tuple(t if dice.random() < 0.8 else int(dice.integers(VOCABULARY)) for t in wanted[len(tokens) :][:4])
        allowed = state.allowed(drafts)
        assert drafts[: len(allowed)] == allowed
        before = state.position
        guessed = sampler.guess(logits_after(tokens + allowed, 5)[None], [state], [allowed])
        if tokens + allowed == wanted[: len(tokens) + len(allowed)] and len(tokens + allowed) < len(wanted):
            assert guessed == [wanted[len(tokens) + len(allowed)]]  # the same logits, the same numbers
        assert state.position == before
        rows = torch.stack([logits_after(tokens + allowed[:n], 5) for n in range(len(allowed) + 1)])
        [chosen] = sampler.sample(rows, [Ask(state, 0, allowed)])
        tokens += chosen.tokens
        accepted += chosen.accepted
    assert tokens == wanted
    assert accepted > len(wanted) // 3


def test_drafts_that_the_grammar_forbids_are_cut() -> None:
    sampler = Sampler(VOCABULARY, CONSTRAINTS)
    state = sampler.open(asked(Sampling(constraint=Constraint(ConstraintKind.REGEX, "abc"))), 0)
    a, b, c, d = (BYTES.encode(letter).ids[0] for letter in "abcd")
    assert state.allowed((a, b, d, c)) == (a, b)
    assert state.allowed((d,)) == ()
    assert state.allowed((VOCABULARY - 1,)) == ()
    free = sampler.open(asked(Sampling()), 0)
    assert free.allowed((d, a)) == (d, a)


def test_each_answer_of_a_request_is_at_its_own_place() -> None:
    sampler = Sampler(VOCABULARY, CONSTRAINTS)
    request = asked(Sampling(temperature=0, constraint=KINDS["grammar"]))
    first, second = sampler.open(request, 0), sampler.open(request, 1)
    one(sampler, torch.zeros(VOCABULARY), first)
    assert second.allowed(tuple(BYTES.encode("hi there.").ids))
    assert not first.allowed(tuple(BYTES.encode("hi there.").ids))


@pytest.mark.parametrize("name", ["byte-level", "gemma", "llama2"])
def test_every_kind_of_tokenizer_can_be_constrained(name: str) -> None:
    tokenizer = TOKENIZERS[name]
    size = tokenizer.get_vocab_size()
    constraints = Constraints(tokenizer, vocabulary=size, end=[tokenizer.token_to_id("</s>")])
    sampler = Sampler(size, constraints)
    state = sampler.open(
        asked(Sampling(temperature=0, constraint=Constraint(ConstraintKind.REGEX, "(hi|hello) there"))), 0
    )
    tokens: Tokens = ()
    while not state.ended:
        tokens += one(sampler, torch.zeros(size), state).tokens
    assert tokenizer.decode(list(tokens)).strip() in ("hi there", "hello there")


def test_a_tokenizer_that_is_not_understood_is_told() -> None:
    constraints = Constraints(TOKENIZERS["metaspace"], vocabulary=40, end=[0])
    with pytest.raises(InvalidRequestError, match="its tokenizer is of another kind"):
        constraints.prepare(Constraint(ConstraintKind.REGEX, "a"))


def test_special_tokens_are_no_text_that_matches() -> None:
    sampler = Sampler(VOCABULARY, CONSTRAINTS)
    state = sampler.open(asked(Sampling(constraint=Constraint(ConstraintKind.REGEX, "<(s|tool call)>"))), 0)
    assert state.allowed((BYTES.token_to_id("<s>"),)) == ()
    assert state.allowed((BYTES.token_to_id("<tool call>"),)) != ()


@pytest.mark.parametrize("name", ["gemma", "llama2"])
def test_text_that_a_grammar_demands_is_made_of_the_tokens_that_the_tokenizer_makes_of_it(name: str) -> None:
    """Others would spell it as well, but no model was trained on them."""
    tokenizer = TOKENIZERS[name]
    size = tokenizer.get_vocab_size()
    sampler = Sampler(size, Constraints(tokenizer, vocabulary=size, end=[tokenizer.token_to_id("</s>")]))
    state = sampler.open(asked(Sampling(temperature=0, constraint=Constraint(ConstraintKind.REGEX, "a hi"))), 0)
    logits = torch.zeros(size)
    logits[tokenizer.token_to_id("\u2581h")] = 9
    made = [one(sampler, logits, state).tokens[0] for _ in range(3)]
    assert [tokenizer.id_to_token(token) for token in made] == ["a", "\u2581", "hi"]
