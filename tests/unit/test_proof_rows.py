"""Programs whose rows leave each other alone are batched; those that mix them are not, and the report says why."""

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from headway_api.podconfig import ColdConfig, Phase
from headway_runtime.loading import load_model
from headway_runtime.metrics import Metrics
from headway_runtime.origin import Origin
from headway_runtime.pod import Pod
from torch import nn
from torch.export import Dim

from tests.unit.small_models import prepare


class Centred(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x - x.mean(0, keepdim=True)


class Turned(nn.Module):
    """Gives every row the answer of another one."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.flip(0) * 2


class Sorted(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sort(0).values


class Chosen(nn.Module):
    """One branch for all rows."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = torch.cond(x.sum() > 0, lambda a: a + 1, lambda a: a - 1, (x,))
        return result


class Counted(nn.Module):
    """Whole numbers only."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + x.sum(0, keepdim=True)


class Trimmed(nn.Module):
    """As wide as its longest row."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        width = x.max().item()
        torch._check(width >= 0)
        torch._check(width <= x.shape[1])
        return x[:, :width]


class Numbered(nn.Module):
    """Which of the batch's different words each is; rows of the least word are 0 among all companions."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.unique(x, return_inverse=True)[1]


class Scaled(nn.Module):
    """By the largest value below a ceiling, which a row of ones has reached."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x / (1 + x.clamp(0, 1).nan_to_num().amax())


class Shared(nn.Module):
    """Every row gets its part of the whole."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x / x.shape[0]


class Misread(nn.Module):
    """Takes words for rows on its way back: right where there is one word."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.gather(x.T.flatten(), 0, torch.arange(x.numel())).view(x.shape) * 2


class Distant(nn.Module):
    """Takes the rows for points in time, and adds the one five before it: two rows show nothing of it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + nn.functional.pad(x, (0, 0, 5, 0))[:-5]


class Convolved(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Conv1d(3, 4, 1), nn.BatchNorm1d(4), nn.ReLU(), nn.Flatten())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.net(x.unsqueeze(-1))
        return result


class Attended(nn.Module):
    """Ids to an encoder with attention; a table of one word, so that companions with another id fail."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(1, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layer(self.words(x))
        return result


def loaded(module: nn.Module, folder: Path, *, dtype: torch.dtype, words: Any = None) -> Pod:
    example = torch.zeros(3, 3 if words is None else 4, dtype=dtype)
    axes = {0: Dim("batch", min=1, max=8)} | ({} if words is None else {1: words})
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(module.eval(), (example,), dynamic_shapes=(axes,), strict=False)
        torch.export.save(program, folder / "model.pt2")
    cold = {"model": "m", "namespace": "t", "revision": "0a1b2c3d", "artifact": {"uri": "file:///m.pt2"}}
    pod = Pod(ColdConfig.model_validate({**cold, "device": {"kind": "cpu"}}), Metrics(), Origin())
    directory = prepare(folder / "model.pt2", folder / "prepared")
    pod.install(load_model(pod, directory, lambda outcomes, record: None, lambda function, *args: function(*args)))
    return pod


@pytest.mark.parametrize("module", [Centred, Turned, Sorted, Chosen, Scaled, Distant])
def test_a_program_that_mixes_rows_runs_one_request_at_a_time(module: type[nn.Module], tmp_path: Path) -> None:
    refuses_to_batch(loaded(module(), tmp_path, dtype=torch.float32))


def test_a_program_that_counts_its_rows_runs_one_request_at_a_time(tmp_path: Path) -> None:
    refuses_to_batch(loaded(Shared(), tmp_path, dtype=torch.float32), "how many rows there are")


def test_a_program_that_mistakes_an_axis_is_caught_though_one_word_hides_it(tmp_path: Path) -> None:
    refuses_to_batch(loaded(Misread(), tmp_path, dtype=torch.float32, words=Dim("words", min=1, max=8)))


@pytest.mark.parametrize("module", [Counted, Trimmed, Numbered])
def test_mixed_rows_of_whole_numbers_are_seen_too(module: type[nn.Module], tmp_path: Path) -> None:
    refuses_to_batch(loaded(module(), tmp_path, dtype=torch.int64))


def refuses_to_batch(pod: Pod, what: str = "the other rows of its batch") -> None:
    assert pod.phase is Phase.READY
    assert pod.model is not None
    pod.knobs_changed('{"maxBatch": 4}', "abc")
    (clamp,) = pod.report().knobs.clamped
    assert (clamp.field, clamp.effective) == ("spec.batching.maxBatch", "1")
    assert f"a row of output output_0 depends on {what}" in clamp.message
    several = torch.ones(3, 3, dtype=torch.float32)
    assert pod.model.layout.group_key({"batch": 3}, (several,)) is None


@pytest.mark.parametrize(("module", "dtype"), [(Convolved, torch.float32), (Attended, torch.int64)])
def test_a_program_of_independent_rows_is_batched(module: type[nn.Module], dtype: torch.dtype, tmp_path: Path) -> None:
    pod = loaded(module(), tmp_path, dtype=dtype)
    assert pod.model is not None
    assert pod.model.layout.batch == "batch"
