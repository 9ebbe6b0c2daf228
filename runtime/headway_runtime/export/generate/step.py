"""One step of the scheduler as a module: an unmodified decoder of transformers whose attention is the operator.

transformers looks its attention up by name (`AttentionInterface`), so that nothing of the model is rewritten. Under
a name of our own it makes no mask either: which token sees which is the operator's to know.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import torch
from transformers import AttentionInterface

from headway_runtime.export.errors import ExportError, explain
from headway_runtime.export.generate import operator
from headway_runtime.prepare.decoder import INPUTS

NAME = "headway_paged"
_HARMLESS = {
    "cache",
    "cache_position",
    "dropout",
    "is_causal",
    "output_attentions",
    "output_hidden_states",
    "past_key_values",
    "position_ids",
    "return_dict",
    "use_cache",
}
"""What transformers hands on to an attention that does not change what it computes, where it is not asked for."""


class _Metadata(NamedTuple):
    """The operator's arguments that are the program's own inputs, in its order."""

    block_tables: torch.Tensor
    seq_lens: torch.Tensor
    query_start_loc: torch.Tensor
    slot_mapping: torch.Tensor


_METADATA: ContextVar[_Metadata] = ContextVar("metadata")


class Step(torch.nn.Module):  # type: ignore[misc]  # torch's types are not read
    """The program of the contract, around a model. `vocabulary`: how many logits are wanted, if not the model's own
    number: families fill theirs up to different sizes, and those of a draft are compared with its target's.
    """

    def __init__(self, model: torch.nn.Module, vocabulary: int | None = None) -> None:
        super().__init__()
        self.model = model
        self.vocabulary = vocabulary

    def forward(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        slot_mapping: torch.Tensor,
        block_tables: torch.Tensor,
        seq_lens: torch.Tensor,
        query_start_loc: torch.Tensor,
        logits_idx: torch.Tensor,
    ) -> torch.Tensor:
        """Shapes and types: `prepare.decoder`. -> logits float32 [L, V]."""
        token = _METADATA.set(_Metadata(block_tables, seq_lens, query_start_loc, slot_mapping))
        try:
            found = self.model(
                input_ids=token_ids[None], position_ids=positions[None], use_cache=False, logits_to_keep=logits_idx
            )
        finally:
            _METADATA.reset(token)
        logits: torch.Tensor = found.logits[0].to(torch.float32)
        if self.vocabulary is not None and self.vocabulary != logits.shape[1]:
            more = self.vocabulary - logits.shape[1]
            return torch.nn.functional.pad(logits, (0, more), value=float("-inf")) if more > 0 else logits[:, :more]
        return logits


def trace(model: torch.nn.Module, vocabulary: int | None = None) -> torch.export.ExportedProgram:
    """The program of a model, which is as it was afterwards. Raises ExportError."""
    sizes = {name: torch.export.Dim(name, min=1) for name in "TBML"}
    axes = {**sizes, "B+1": sizes["B"] + 1}
    shapes = {name: {axis: axes[size] for axis, size in enumerate(shape)} for name, _, shape in INPUTS}
    try:
        with torch.no_grad(), attention_is_paged(model):
            traced = torch.export.export(Step(model, vocabulary), (), _example(), dynamic_shapes=shapes, strict=False)
    except ExportError:
        raise
    except Exception as error:
        raise explain(error) from error
    traced.example_inputs = None  # they would be saved as a pickle; the golden prompts say more
    return traced


@contextmanager
def attention_is_paged(model: Any) -> Iterator[None]:
    """Within it, the model's attention is the operator. Raises ExportError where it cannot be."""
    before = model.config._attn_implementation
    try:
        model.set_attn_implementation(NAME)
    except (ValueError, AttributeError) as error:
        raise ExportError(
            f"{type(model).__name__} does not look its attention up in transformers' AttentionInterface, so that it "
            f"cannot become paged: {error}"
        ) from error
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def _example() -> dict[str, torch.Tensor]:
    """Three sequences: a prompt, the middle of one, an answer. Sizes differ, so that none is taken for another's."""
    int32 = torch.int32
    return {
        "token_ids": torch.zeros(12, dtype=torch.int64),
        "positions": torch.tensor([0, 1, 2, 3, 4, 10, 11, 12, 13, 14, 15, 32]),
        "slot_mapping": torch.arange(16, 28),
        "block_tables": torch.arange(1, 16, dtype=int32).reshape(3, 5),
        "seq_lens": torch.tensor([5, 16, 33], dtype=int32),
        "query_start_loc": torch.tensor([0, 5, 11, 12], dtype=int32),
        "logits_idx": torch.tensor([4, 11]),
    }


def _attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """As transformers calls it: query [1, Hq, T, D], key and value [1, Hk, T, D] -> [1, T, Hq, D]."""
    layer = getattr(module, "layer_idx", None)
    where = f"{type(module).__name__} (layer {layer})"
    if layer is None:
        raise ExportError(f"{where} does not say which layer it is, so that its keys have no place in a cache")
    if attention_mask is not None or not others.get("is_causal", getattr(module, "is_causal", True)):
        raise ExportError(f"{where} attends otherwise than causally, to what came before; that cannot be exported")
    given = sorted(
        name for name, told in others.items() if name not in _HARMLESS and told is not None and told is not False
    )
    if given:
        raise ExportError(f"{where} asks of its attention {', '.join(given)}, which {NAME} does not have")
    if query.shape[0] != 1 or key.shape != value.shape or key.shape[2] != query.shape[2]:
        raise ExportError(f"{where}: keys and values are not those of the same tokens, or not of one size")
    rows = (tensor[0].transpose(0, 1).contiguous() for tensor in (query, key, value))  # each [T, H, D]
    scale = query.shape[-1] ** -0.5 if scaling is None else float(scaling)
    found = operator.paged_attention(
        *rows, *_METADATA.get(), layer, scale, int(sliding_window or 0), float(softcap or 0.0)
    )
    return found.unsqueeze(0), None


AttentionInterface.register(NAME, _attention)
