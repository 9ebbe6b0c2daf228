"""The fields that completions and chat completions share: how tokens are chosen, and where an answer ends. Pure.

OpenAI's, with its ranges, and what vLLM adds to them. What a request leaves open is as the artifact's record has it
(`DecoderFacts.defaults`), then as OpenAI has it.
"""

from typing import Any

from headway_runtime.generation.facts import Facts
from headway_runtime.generation.values import Constraint, Generate, Sampling
from headway_runtime.protocols.openai.errors import ParameterError
from headway_runtime.protocols.openai.fields import Fields, shown

MAX_TOKENS = 10_000_000  # whether there is room for them shows when the prompt is read
MAX_ANSWERS = 128  # n
MAX_STOPS = 4
MAX_STOP = 1024  # characters
MAX_STOP_TOKENS = 64
MAX_BIASES = 1024
LEAST_PENALTY = 0.01  # of repetition: logits are divided by it, and must stay numbers
MAX_TOP = 20  # likeliest tokens that are told
_LARGEST_SEED = 2**63 - 1

SAMPLING = frozenset(
    {
        *("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty"),
        *("logit_bias", "seed", "n", "stop", "stop_token_ids", "ignore_eos", "min_tokens", "skip_special_tokens"),
    }
)
STREAMING = frozenset({"stream", "stream_options"})
IGNORED = frozenset(
    {
        *("user", "metadata", "store", "service_tier", "safety_identifier", "prediction"),
        *("prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"),
    }
)
"""What is read and has no effect on an answer."""


def generate_of(
    fields: Fields, facts: Facts, *, constraint: Constraint | None, logprobs: int | None, max_tokens: int | None
) -> Generate:
    """All but the prompt; `max_tokens` None: 0 for now. Raises ParameterError."""
    stop_tokens = _tokens(fields, "stop_token_ids", facts.vocabulary)
    ends = frozenset() if fields.boolean("ignore_eos") else frozenset(facts.decoder.end)
    least = fields.integer("min_tokens", 0, facts.max_length if max_tokens is None else max_tokens)
    return Generate(
        prompt=(),
        max_tokens=max_tokens or 0,
        sampling=_sampling(fields, facts, constraint),
        n=fields.integer("n", 1, MAX_ANSWERS) or 1,
        stop=_stops(fields),
        stop_tokens=ends | stop_tokens,
        min_tokens=least or 0,
        logprobs=logprobs,
        skip_special_tokens=fields.boolean("skip_special_tokens", True),
    )


def streaming(fields: Fields) -> tuple[bool, bool]:
    """Whether the answer is a stream, and whether that ends with the usage. Raises ParameterError."""
    stream = fields.boolean("stream")
    options = fields.object("stream_options")
    if options is None:
        return stream, False
    if not stream:
        raise ParameterError("stream_options", "is of a stream, and 'stream' is not true")
    options.only({"include_usage", "include_obfuscation", "continuous_usage_stats"}, {})
    if options.boolean("continuous_usage_stats"):
        raise ParameterError("stream_options.continuous_usage_stats", "is not served; include_usage is, at the end")
    return stream, options.boolean("include_usage")


def _sampling(fields: Fields, facts: Facts, constraint: Constraint | None) -> Sampling:
    usual = dict(facts.decoder.defaults)

    def or_usual(value: float | None, name: str, otherwise: float) -> float:
        return usual.get(name, otherwise) if value is None else value

    top_k = fields.integer("top_k", -1, facts.vocabulary)  # -1 is vLLM's for all
    return Sampling(
        temperature=or_usual(fields.number("temperature", 0, 2), "temperature", 1.0),
        top_k=max(0, int(or_usual(top_k, "topK", 0))),
        top_p=or_usual(fields.number("top_p", 0, 1, above=True), "topP", 1.0),
        min_p=or_usual(fields.number("min_p", 0, 1), "minP", 0.0),
        repetition_penalty=or_usual(fields.number("repetition_penalty", LEAST_PENALTY, 10), "repetitionPenalty", 1.0),
        presence_penalty=fields.number("presence_penalty", -2, 2) or 0.0,
        frequency_penalty=fields.number("frequency_penalty", -2, 2) or 0.0,
        logit_bias=_biases(fields, facts.vocabulary),
        seed=fields.integer("seed", -_LARGEST_SEED - 1, _LARGEST_SEED),
        constraint=constraint,
    )


def _stops(fields: Fields) -> tuple[str, ...]:
    given = fields.raw("stop")
    if given is None:
        return ()
    stops = [given] if isinstance(given, str) else given
    good = isinstance(stops, list) and len(stops) <= MAX_STOPS
    if not good or not all(isinstance(each, str) and 0 < len(each) <= MAX_STOP for each in stops):
        raise fields.error("stop", f"a text, or at most {MAX_STOPS} texts, each of 1 to {MAX_STOP} characters")
    return tuple(stops)


def _tokens(fields: Fields, name: str, vocabulary: int) -> frozenset[int]:
    given = fields.list(name) or []
    if len(given) > MAX_STOP_TOKENS or not all(is_token(each, vocabulary) for each in given):
        raise fields.error(name, f"a list of at most {MAX_STOP_TOKENS} token ids from 0 to {vocabulary - 1}")
    return frozenset(given)


def _biases(fields: Fields, vocabulary: int) -> dict[int, float]:
    biases = fields.object("logit_bias")
    if biases is None:
        return {}
    names = biases.names()
    if len(names) > MAX_BIASES:
        raise ParameterError("logit_bias", f"has {len(names)} tokens; at most {MAX_BIASES}")
    found: dict[int, float] = {}
    for name in names:
        if not name.isascii() or not name.isdigit() or not is_token(token := int(name[:20]), vocabulary):
            raise ParameterError("logit_bias", f"{shown(name)} is not a token id from 0 to {vocabulary - 1}")
        found[token] = biases.number(name, -100, 100) or 0.0
    return found


def is_token(value: Any, vocabulary: int) -> bool:
    """Whether it is a token id of a vocabulary of this size."""
    return type(value) is int and 0 <= value < vocabulary
