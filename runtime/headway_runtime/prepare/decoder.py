"""The contract `headway.generate/v1`: what a program must look like to generate text continuously. No torch.

One call is one step of the scheduler: T tokens of B sequences, a few of a prompt or one of an answer each, joined
without padding. The program writes the keys and values of these tokens into the runtime's cache and attends to what is
there by one operator, `headway::paged_attention`; it sees no cache otherwise, so that layout, element type and device
of the cache are the runtime's. Source of the scheme: Orca (OSDI 2022), PagedAttention (SOSP 2023).

    token_ids        int64 [T]    the tokens
    positions        int64 [T]    of each within its sequence
    slot_mapping     int64 [T]    where its keys and values go: block * BLOCK_TOKENS + offset; -1: nowhere
    block_tables     int32 [B, M] the blocks of each sequence in order; what is beyond its length is 0
    seq_lens         int32 [B]    tokens of each sequence, with those of this step
    query_start_loc  int32 [B+1]  where each sequence's tokens begin in token_ids; the last is T
    logits_idx       int64 [L]    of which tokens the logits are wanted

    logits           float32 [L, V]
"""

from dataclasses import dataclass

CONTRACT = "headway.generate/v1"
TASK = "generate"  # in the record
BLOCK_TOKENS = 16
ATTENTION = "headway.paged_attention.default"
SCHEMA = (
    "headway::paged_attention(Tensor q, Tensor k, Tensor v, Tensor block_tables, Tensor seq_lens, "
    "Tensor query_start_loc, Tensor slot_mapping, int layer, float scale, int window, float softcap) -> Tensor"
)
"""q [T, Hq, D], k and v [T, Hk, D], Hk divides Hq; `window` tokens are seen, this one included (0: all); `softcap`: of
the scores, before the softmax (0: none). The result is [T, Hq, D], contiguous."""

INPUTS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("token_ids", "int64", ("T",)),
    ("positions", "int64", ("T",)),
    ("slot_mapping", "int64", ("T",)),
    ("block_tables", "int32", ("B", "M")),
    ("seq_lens", "int32", ("B",)),
    ("query_start_loc", "int32", ("B+1",)),
    ("logits_idx", "int64", ("L",)),
)
METADATA = ("block_tables", "seq_lens", "query_start_loc", "slot_mapping")
"""The arguments of the operator that must be the program's own inputs, as they are, in its order."""


@dataclass(frozen=True, slots=True)
class LayerGeometry:
    """Attention of one layer. `layer` is its number in the operator's calls, from 0; `window` 0: all are seen."""

    layer: int
    heads: int
    kv_heads: int
    head_dim: int
    window: int


@dataclass(frozen=True, slots=True)
class DecoderGeometry:
    """What the calls of the operator say: the document's `decoder` is this as JSON."""

    layers: tuple[LayerGeometry, ...]
    vocabulary: int

    def bytes_per_token(self, element_bytes: int) -> int:
        """Keys and values of one token in all layers."""
        return sum(2 * layer.kv_heads * layer.head_dim * element_bytes for layer in self.layers)


@dataclass(frozen=True, slots=True)
class GoldenPrompt:
    """Tokens, and those that the exporting machine continued them with, greedily and with its own weights.

    `margins`: by how much each of these led the second-best logit, there.
    """

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    margins: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class DecoderFacts:
    """What the archive's record says beside the program (`generation` in extra/headway.json).

    `context`: tokens that the program was made for. `end`: tokens that end an answer. `chat_template`: Jinja, as
    `tokenizer_config.json` has it; `begin_text` and `end_text` are its `bos_token` and `eos_token`. `defaults`: how is
    sampled where a request says nothing: temperature, topK, topP, minP, repetitionPenalty.
    """

    context: int
    end: tuple[int, ...]
    chat_template: str | None = None
    begin_text: str = ""
    end_text: str = ""
    defaults: tuple[tuple[str, float], ...] = ()
    golden: tuple[GoldenPrompt, ...] = ()
