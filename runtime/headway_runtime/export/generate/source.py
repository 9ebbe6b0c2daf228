"""Where a decoder comes from: a folder of Hugging Face, a GGUF file, or the author's own code. Nothing is fetched."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from headway_runtime.export import source as sources
from headway_runtime.export.errors import ExportError

_NEEDED = ("config.json", "tokenizer.json")
_LONG = ("rope_freqs.", "rope_factors")
FORM = "a folder with config.json, tokenizer.json and *.safetensors, a .gguf file, or FILE.py:NAME"


@dataclass(frozen=True, slots=True)
class Pretrained:
    """A model of transformers in eval mode, and its tokenizer."""

    model: Any
    tokenizer: Any


def load(source: str, dtype: torch.dtype) -> Pretrained:
    """Read a decoder; the weights of a folder or a GGUF file in `dtype`. Raises ExportError."""
    path = Path(source)
    with _quiet():
        if path.is_dir():
            return _folder(path, dtype)
        if path.suffix == ".gguf":
            return _gguf(path, dtype)
        if ":" in source:
            return _code(source)
    if path.exists():
        raise ExportError(f"{source} is not what a decoder is read from; write {FORM}")
    raise ExportError(f"there is no {source}, and nothing is fetched; write {FORM}")


def _folder(path: Path, dtype: torch.dtype) -> Pretrained:
    for name in _NEEDED:
        if not (path / name).is_file():
            raise ExportError(f"{path} has no {name}; what is exported is {FORM}")
    if not any(path.glob("*.safetensors")):
        raise ExportError(f"{path} has no weights in *.safetensors; pickled ones are not opened")
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    from headway_runtime.export.generate import accept

    local: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    with _said_by(path):
        config = AutoConfig.from_pretrained(path, **local)
        accept.check_config(config)
        model, report = AutoModelForCausalLM.from_pretrained(
            path, config=config, dtype=dtype, use_safetensors=True, output_loading_info=True, **local
        )
        tokenizer = AutoTokenizer.from_pretrained(path, **local)
    lost = sorted(map(str, [*report["missing_keys"], *report["mismatched_keys"]]))
    if lost:
        raise ExportError(f"{path} lacks weights of the model: {', '.join(lost[:3])}")
    return Pretrained(model.eval(), tokenizer)


def _gguf(path: Path, dtype: torch.dtype) -> Pretrained:
    """What transformers reads of a GGUF file; quantised weights become what they stand for."""
    if not path.is_file():
        raise ExportError(f"there is no file {path}")
    from gguf import GGUFReader
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    from headway_runtime.export.generate import accept

    with _said_by(path):
        reader = GGUFReader(path)
        unread = [tensor.name for tensor in reader.tensors if tensor.name.startswith(_LONG)]
        if unread:
            raise ExportError(f"{path} has {unread[0]}, which transformers does not read; export the original folder")
        config = AutoConfig.from_pretrained(path.parent, gguf_file=path.name, local_files_only=True)
        accept.check_config(config)
        model = AutoModelForCausalLM.from_config(config, dtype=dtype, trust_remote_code=False)
        read = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=model, torch_dtype=dtype)
        report = model.load_state_dict(read["tensors"], strict=False)
        model.tie_weights()
        model.generation_config.eos_token_id = _ends(reader, model.generation_config.eos_token_id)
        tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name, local_files_only=True)
    lost = set(report.missing_keys) - set(model.all_tied_weights_keys)
    if lost:
        raise ExportError(f"{path} lacks weights of the model: {', '.join(sorted(lost)[:3])}")
    return Pretrained(model.eval(), _without_strangers(tokenizer, config.vocab_size))


def _without_strangers(tokenizer: Any, tokens: int) -> Any:
    """transformers gives to tokenizers of GGUF files special tokens that the model may not have."""
    document = json.loads(tokenizer.backend_tokenizer.to_str())
    own = [token for token in document["added_tokens"] if token["id"] < tokens]
    if len(own) == len(document["added_tokens"]):
        return tokenizer
    made = Tokenizer.from_str(json.dumps({**document, "added_tokens": own}))
    known = made.get_vocab(with_added_tokens=True)
    named = {"bos_token": tokenizer.bos_token, "eos_token": tokenizer.eos_token}
    found = PreTrainedTokenizerFast(
        tokenizer_object=made, **{name: text for name, text in named.items() if text in known}
    )
    found.chat_template = tokenizer.chat_template
    return found


def _ends(reader: Any, known: int | None) -> list[int] | None:
    """An instructed model ends its turn by a token of its own, which transformers does not read."""
    turn = reader.get_field("tokenizer.ggml.eot_token_id")
    found = {known} if turn is None else {known, int(turn.contents())}
    return sorted(token for token in found if token is not None) or None


def _code(target: str) -> Pretrained:
    """What a function of the author returns: a model and its tokenizer."""
    found = sources.called(target)
    if not isinstance(found, tuple) or len(found) != 2 or not isinstance(found[0], torch.nn.Module):
        raise ExportError(f"{target} must return (model, tokenizer), both of transformers; see docs/generation.md")
    return Pretrained(*found)


@contextmanager
def _said_by(path: Path) -> Iterator[None]:
    """What transformers cannot read, in a line."""
    try:
        yield
    except ExportError:
        raise
    except Exception as error:
        first = next((line for line in str(error).splitlines() if line.strip()), "no message")
        raise ExportError(f"transformers cannot read {path}: {type(error).__name__}: {first[:400]}") from error


@contextmanager
def _quiet() -> Iterator[None]:
    """No bars and no advice, which is for those who train."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    level = logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if shown:
            logging.enable_progress_bar()
