"""Small real models with steps, exported and prepared as a user's would be, and their tokenizer."""

from pathlib import Path

import torch
from headway_runtime.export import Labels, Size, Steps, Text, export_model
from headway_runtime.prepare import run
from tokenizers import Tokenizer, models, pre_tokenizers, processors

WORDS = (
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    *["the", "cat", "dog", "sat", "ran", "on", "under", "a", "mat", "hat", "red", "blue"],
)
LABELS = ("animal", "thing", "colour", "other")


def tokenizer(path: Path) -> Path:
    """Words, lower case, between [CLS] and [SEP]."""
    made = Tokenizer(models.WordLevel({word: at for at, word in enumerate(WORDS)}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    made.enable_padding(length=40)  # what files ask for by themselves is left to the step
    made.save(str(path))
    return path


class Encoder(torch.nn.Module):
    """ids, mask [batch, sequence] -> embedding [batch, 8], scores [batch, 4], by a masked mean."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(11)
        self.words = torch.nn.Embedding(len(WORDS), 8)
        self.score = torch.nn.Linear(8, len(LABELS))

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> dict[str, torch.Tensor]:
        weight = mask.to(torch.float32).unsqueeze(-1)
        mean = (torch.tanh(self.words(ids)) * weight).sum(1) / weight.sum(1).clamp(min=1e-9)
        return {"embedding": torch.nn.functional.normalize(mean, dim=1), "scores": self.score(mean)}


class Maskless(Encoder):
    """The same for texts that are never filled up."""

    def forward(self, ids: torch.Tensor) -> dict[str, torch.Tensor]:  # type: ignore[override]
        return super().forward(ids, torch.ones_like(ids))


def encoder(folder: Path, *, truncate: bool = False, longest: int = 32) -> Path:
    """The encoder's `.pt2`, with a text and a labels step."""
    ids = torch.tensor([[2, 4, 5, 3], [2, 6, 3, 0], [2, 8, 9, 3]])
    inputs = {"ids": ids, "mask": (ids != 0).to(torch.int64)}
    batch, sequence = Size("batch", 1, 64), Size("sequence", 1, longest)
    export_model(
        Encoder().eval(),
        inputs,
        path=folder / "encoder.pt2",
        dynamic_shapes={name: {0: batch, 1: sequence} for name in inputs},
        padding={"ids": 0, "mask": 0},
        labels=LABELS,
        tokenizer=tokenizer(folder / "tokenizer.json"),
        steps=Steps(
            text=Text(ids="ids", mask="mask", truncate=truncate),
            labels=Labels("scores", top=2, softmax=True),
        ),
    )
    return folder / "encoder.pt2"


def maskless(folder: Path) -> Path:
    """The one without a mask."""
    export_model(
        Maskless().eval(),
        {"ids": torch.tensor([[2, 4, 5, 3], [2, 6, 7, 3], [2, 8, 9, 3]])},
        path=folder / "maskless.pt2",
        dynamic_shapes={"ids": {0: Size("batch", 1, 64), 1: Size("sequence", 1, 32)}},
        tokenizer=tokenizer(folder / "tokenizer.json"),
        steps=Steps(text=Text(ids="ids")),
    )
    return folder / "maskless.pt2"


def prepared(file: Path) -> Path:
    """What the prepare container makes of it."""
    target = file.with_suffix(".prepared")
    target.mkdir()
    run.prepare(file.as_uri(), target, pinned=None, credentials=Path("/nonexistent"))
    return target


def ids_of(text: str) -> list[int]:
    """What the tokenizer says, by hand."""
    return [2, *(WORDS.index(word) if word in WORDS else 1 for word in text.split()), 3]


def expected(text: str, *, longest: int | None = None) -> dict[str, torch.Tensor]:
    """What the module itself answers to one text."""
    ids = torch.tensor([ids_of(text)[:longest]])
    with torch.no_grad():
        return Encoder().eval()(ids, torch.ones_like(ids))
