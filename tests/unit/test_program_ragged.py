"""What only fills a run up is not multiplied, where that was tried and changes nothing, and nowhere else."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from headway_api.podconfig import Verdict
from headway_api.types import Padding
from headway_runtime.batching.assembly import Assembly
from headway_runtime.batching.tickets import Ticket
from headway_runtime.batching.work import Work
from headway_runtime.kernels import library
from headway_runtime.program import quicker, ragged
from headway_runtime.proof import shares
from torch import nn
from torch.nn import functional

from tests.unit.proof_models import BUCKETS, WORDS, Opened, export, ids, mask, opened

pytestmark = pytest.mark.skipif(library.native() is None, reason="no native kernels")
WIDTH = 256


@pytest.fixture(autouse=True)
def _worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever measurements on this busy machine would say."""
    monkeypatch.setattr(quicker, "quicker", lambda: True)
    monkeypatch.setattr(shares, "LEAST", -10.0)


class Encoder(nn.Module):
    """ids, mask [batch, sequence] -> the mean of what the mask shows [batch, 256]: right, padded or not."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.words = nn.Embedding(WORDS, WIDTH)
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def between(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.first(x))

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = self.between(self.words(ids))
        seen = mask[:, None, :].bool().expand(-1, ids.shape[1], -1)
        x = x + functional.scaled_dot_product_attention(x, x, x, attn_mask=seen)
        weight = mask.unsqueeze(-1).float()
        y: torch.Tensor = self.last((x * weight).sum(1) / weight.sum(1).clamp(min=1e-9))
        return y


class Turned(Encoder):
    """What fills a row up stands in front of it where the product is made."""

    def between(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.first(x.flip(1))).flip(1)


class Normed(Encoder):
    """Of nought it makes NaN, which no mask hides: nought times NaN."""

    def between(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        return y / y.norm(dim=-1, keepdim=True)


class Transposed(Encoder):
    def between(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.first(x.transpose(0, 1)).transpose(0, 1))


class Flattened(Encoder):
    def between(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.first(x.reshape(-1, WIDTH)).reshape(x.shape))


class Constant(Encoder):
    """A table of four rows, which are not those of a run of four."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.randn(4, 160, WIDTH))

    def between(self, x: torch.Tensor) -> torch.Tensor:
        assert isinstance(self.table, torch.Tensor)
        return torch.tanh(x) + self.first(self.table[:, : x.shape[1]]).sum(0)


class Picky(Encoder):
    """It fails on a row of noughts which the mask shows: what no request has, and what is measured."""

    def __init__(self) -> None:
        super().__init__()
        self.signs = nn.Embedding(2, WIDTH)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        y = torch.tanh(self.first(self.words(ids)))
        sign = self.signs((y.abs().sum(-1) > 0).long() - mask)
        weight = mask.unsqueeze(-1).float()
        z: torch.Tensor = self.last(((y + sign) * weight).sum(1) / weight.sum(1).clamp(min=1e-9))
        return z


class Labels(Encoder):
    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return super().forward(ids, mask).argmax(-1)


Made = Callable[[type[Encoder]], Opened]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Callable[[type[Encoder]], Path]:
    """Each exported once."""

    made: dict[type[Encoder], Path] = {}

    def file(module: type[Encoder]) -> Path:
        if module not in made:
            folder = tmp_path_factory.mktemp(module.__name__)
            made[module] = export(module(), {"ids": ids(), "mask": mask()}, folder / "m.pt2")
        return made[module]

    return file


@pytest.fixture
def encoder(files: Callable[[type[Encoder]], Path], tmp_path: Path) -> Made:
    def made(module: type[Encoder] = Encoder) -> Opened:
        file = tmp_path / "m.pt2"
        file.symlink_to(files(module))
        return opened(file, buckets=BUCKETS, dimensions={"sequence": "ids.1"})

    return made


def products(found: Opened) -> list[str]:
    """Names of the weights whose products may leave rows out, as far as shapes tell."""
    names = {row["value"]: row["name"] for row in found.document["weights"]}
    most = {"batch": 8, "sequence": 128}
    skips = ragged.found(found.document, found.program, "batch", "sequence", most)
    nodes = [] if skips is None else sorted(skips.nodes)
    return [names[found.document["nodes"][node]["args"][1]["v"]] for node in nodes]


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (Encoder, ["first.weight"]),
        (Turned, ["first.weight"]),
        (Transposed, []),
        (Flattened, []),
        (Constant, []),
    ],
)
def test_shapes_tell_which_products_have_rows_along_the_dimension(
    module: type[Encoder], expected: list[str], encoder: Made
) -> None:
    assert products(encoder(module)) == expected


@pytest.mark.parametrize(
    ("module", "left_out"), [(Encoder, True), (Labels, True), (Turned, False), (Normed, False), (Constant, False)]
)
def test_the_trial_of_padding_decides(module: type[Encoder], left_out: bool, encoder: Made) -> None:
    layout, reports = encoder(module).padding()
    assert [report.verdict for report in reports] == [Verdict.PROVEN], "padding itself is right in all of them"
    assert (layout.skips is not None) == left_out


def test_what_was_not_tried_is_not_left_out(encoder: Made) -> None:
    found = encoder(Encoder)
    layout, _ = found.padding(Padding.TRUSTED)
    assert layout.padded == ("sequence",)
    assert layout.skips is None


def test_without_packed_weights_nothing_is_left_out(encoder: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quicker, "quicker", lambda: False)
    layout, _ = encoder(Encoder).padding()
    assert layout.padded == ("sequence",)
    assert layout.skips is None


def test_too_little_that_is_spared_is_not_worth_it(encoder: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "LEAST", 10.0)
    layout, _ = encoder(Encoder).padding()
    assert layout.skips is None


def test_what_cannot_be_measured_is_not_left_out(encoder: Made) -> None:
    found = encoder(Picky)
    assert products(found) == ["first.weight"]
    layout, reports = found.padding()
    assert [report.verdict for report in reports] == [Verdict.PROVEN]
    assert layout.skips is None


def work(number: int, length: int, rows: int = 1) -> Work:
    row = torch.randint(1, WORDS, (rows, length), generator=torch.Generator().manual_seed(number))
    sizes = {"batch": rows, "sequence": length}
    ticket = Ticket(number, None, rows, 1, 0.0, 1.0, (length,))
    return Work(ticket, (row, torch.ones_like(row)), sizes, number, lambda: False)


def test_answers_have_the_bits_of_runs_in_which_nothing_is_left_out(encoder: Made) -> None:
    found = encoder(Encoder)
    layout, _ = found.padding()
    assembly = Assembly(found.program, layout)
    works = [work(1, 40), work(2, 3, rows=2), work(3, 17), work(4, 1)]
    joint = assembly.joint(works)
    assert joint.left_out is not None
    assert joint.left_out.lengths.tolist() == [40, 3, 3, 17, 1]
    inputs = assembly.join(works, joint)
    some, every = found.program.run(inputs, joint.left_out), found.program.run(inputs)
    assert torch.equal(some[0], every[0])


def test_runs_at_the_same_time_keep_their_own_lengths(encoder: Made) -> None:
    found = encoder(Encoder)
    layout, _ = found.padding()
    assembly = Assembly(found.program, layout)
    lines = [[work(1, 60), work(2, 2)], [work(3, 1), work(4, 60)]]
    joints = [assembly.joint(works) for works in lines]
    inputs = [assembly.join(works, joint) for works, joint in zip(lines, joints, strict=True)]
    expected = [found.program.run(each)[0] for each in inputs]

    def again(number: int) -> bool:
        at = number % 2
        return torch.equal(found.program.run(inputs[at], joints[at].left_out)[0], expected[at])

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(again, range(80)))


@pytest.mark.parametrize("lengths", [(9, 9), (100, 99)])
def test_where_nothing_is_to_be_gained_nothing_is_left_out(lengths: tuple[int, ...], encoder: Made) -> None:
    found = encoder(Encoder)
    layout, _ = found.padding()
    works = [work(number, length) for number, length in enumerate(lengths)]
    assert Assembly(found.program, layout).joint(works).left_out is None


@pytest.mark.parametrize("size", [9, 5])
@pytest.mark.parametrize("lengths", [[5, 3, 2], [5], [], [50, 50], [-1, 2]])
def test_lengths_of_another_run_are_refused_or_mean_nothing(lengths: list[int], size: int, encoder: Made) -> None:
    """Whatever the engine might get wrong: the program answers as ever, or not at all."""
    found = encoder(Encoder)
    skips = ragged.found(found.document, found.program, "batch", "sequence", {"batch": 8, "sequence": 128})
    assert skips is not None
    inputs = [ids(2, 9), torch.ones(2, 9, dtype=torch.int64)]
    real = skips.real(lengths, size)
    if (len(lengths), size) == (2, 9):
        with pytest.raises(RuntimeError, match="lengths"):
            found.program.run(inputs, real)
    else:
        assert torch.equal(found.program.run(inputs, real)[0], found.program.run(inputs)[0])
