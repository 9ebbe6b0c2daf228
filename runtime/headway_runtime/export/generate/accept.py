"""What can be said in the contract, asked before anything is traced: a sentence is better than a stack of torch."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from transformers import PreTrainedModel

from headway_runtime.export.errors import ExportError
from headway_runtime.prepare.decoder import ATTENTION, DecoderGeometry, LayerGeometry

_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
_SENSES = ("vision_config", "audio_config")
_ATTENTION = ("full_attention", "sliding_attention")
_ALIBI = ("bloom", "mpt")
_MOVING = ("dynamic", "longrope")
Reason = str | None


def check_config(config: Any) -> None:
    """Refuse what a decoder's configuration shows not to fit. Raises ExportError."""
    for rule in _RULES:
        reason = rule(config)
        if reason is not None:
            raise ExportError(f"a {config.model_type} cannot be exported to generate text: {reason}")


def check_model(model: Any) -> None:
    """Refuse what is no decoder of transformers that could be run. Raises ExportError."""
    name = type(model).__name__
    if not isinstance(model, PreTrainedModel) or not model.can_generate():
        raise ExportError(f"{name} is no decoder of transformers, such as LlamaForCausalLM")
    if model.training:
        raise ExportError(f"{name} is in training mode; call .eval() on it before exporting")
    types = sorted({str(parameter.dtype).removeprefix("torch.") for parameter in model.parameters()})
    if types not in (["float32"], ["bfloat16"]):
        raise ExportError(f"{name} has weights of {' and '.join(types)}; give float32, or bfloat16: model.to(…)")
    if any(parameter.device.type != "cpu" for parameter in model.parameters()):
        raise ExportError(f'{name} is not on the CPU, where programs are exported; call .to("cpu") on it')


def geometry(program: torch.export.ExportedProgram, layers: int) -> DecoderGeometry:
    """What the operator's calls say. Raises ExportError where they are not one for each of the model's layers."""
    calls = [node for node in program.graph.nodes if str(node.target) == ATTENTION]
    found = sorted((_layer(node) for node in calls), key=lambda layer: layer.layer)
    if [layer.layer for layer in found] != list(range(layers)):
        raise ExportError(
            f"{len(found)} of the model's {layers} layers attend through transformers' AttentionInterface, and each "
            "must once: layers of another kind keep a state that a paged cache does not hold"
        )
    (logits,) = program.graph.output_node().args[0]
    return DecoderGeometry(tuple(found), int(logits.meta["val"].shape[1]))


def _layer(node: Any) -> LayerGeometry:
    q, k = (argument.meta["val"] for argument in node.args[:2])
    layer, _, window, _ = node.args[7:]
    return LayerGeometry(layer, int(q.shape[1]), int(k.shape[1]), int(q.shape[2]), window)


def _crossing(config: Any) -> Reason:
    if getattr(config, "is_encoder_decoder", False) or getattr(config, "add_cross_attention", False):
        return "it attends to the answer of an encoder, and the contract knows only what a sequence itself said"
    return None


def _senses(config: Any) -> Reason:
    found = next((name for name in _SENSES if getattr(config, name, None) is not None), None)
    return found and f"it has a {found}, and the contract takes tokens of text only; export its text model alone"


def _experts(config: Any) -> Reason:
    found = next((name for name in _EXPERTS if (getattr(config, name, None) or 0) > 1), None)
    if found is None:
        return None
    return f"it is a mixture of experts ({found}), whose tokens choose the weights; a program has one path for all"


def _alibi(config: Any) -> Reason:
    if config.model_type in _ALIBI or getattr(config, "alibi", False):
        return "it tells positions by ALiBi, a bias of the scores that the operator does not have"
    return None


def _rotation(config: Any) -> Reason:
    found = next((kind for kind in _rotations(getattr(config, "rope_parameters", None)) if kind in _MOVING), None)
    if found is None:
        return None
    return f"its rope type {found} turns all keys anew when a sequence grows, and those in a cache stay as they are"


def _rotations(parameters: Any) -> Iterator[str]:
    if isinstance(parameters, dict):
        yield str(parameters.get("rope_type", "default"))
        for inner in parameters.values():
            yield from _rotations(inner)


def _layers(config: Any) -> Reason:
    other = sorted(set(getattr(config, "layer_types", None) or ()) - set(_ATTENTION))
    return f"it has layers of the type {', '.join(other)}; known are {', '.join(_ATTENTION)}" if other else None


def _both_ways(config: Any) -> Reason:
    if getattr(config, "use_bidirectional_attention", False) or not getattr(config, "is_causal", True):
        return "its tokens see those that come after them"
    return None


_RULES: tuple[Callable[[Any], Reason], ...] = (_crossing, _senses, _experts, _alibi, _rotation, _layers, _both_ways)
