"""Operators whose arguments say which memory is read: bad places raise, in a child to be sure; good ones compute."""

from typing import Any

import pytest
import torch
from headway_runtime.program import functions

from tests.hostile.forked import fate

TABLE = torch.arange(20.0).reshape(5, 4)
IDS = torch.tensor([0, 4, 2, 1])
STARTS = torch.tensor([0, 1, 3])
WAVE = torch.randn(2, 8)
HALF = torch.randn(2, 5, dtype=torch.complex64)


def bag(**changed: Any) -> list[Any]:
    """Arguments of `embedding_bag`, in order."""
    good = {
        "weight": TABLE, "indices": IDS, "offsets": STARTS, "scale": False, "mode": 0, "sparse": False,
        "weights": None, "last": False, "padding": None,
    }  # fmt: skip
    return list({**good, **changed}.values())


def recurrent_step(gates: int, **changed: Any) -> list[Any]:
    """Arguments of a recurrent cell with 3 features and 4 hidden."""
    h = torch.zeros(2, 4)
    good = {
        "x": torch.ones(2, 3), "state": [h, h] if gates == 4 else h, "ih": torch.ones(4 * gates, 3),
        "hh": torch.ones(4 * gates, 4), "b_ih": torch.ones(4 * gates), "b_hh": torch.ones(4 * gates),
    }  # fmt: skip
    return list({**good, **changed}.values())


BAG, FFT = "aten.embedding_bag.padding_idx", "aten._fft_"
BAD: dict[str, tuple[str, list[Any]]] = {
    "an index beyond the table": (BAG, bag(indices=torch.tensor([0, 5, 1, 1]))),
    "a negative index": (BAG, bag(indices=torch.tensor([0, -1, 1, 1]))),
    "an index of a table without rows": (BAG, bag(weight=TABLE[:0])),
    "an offset beyond the indices": (BAG, bag(offsets=torch.tensor([0, 1, 5]))),
    "offsets that go back": (BAG, bag(offsets=torch.tensor([0, 3, 1]))),
    "offsets that do not start at 0": (BAG, bag(offsets=torch.tensor([1, 3]))),
    "no offset of the end": (BAG, bag(offsets=STARTS[:0], last=True)),
    "an unknown mode": (BAG, bag(mode=7)),
    "weights of too few indices": (BAG, bag(weights=torch.ones(3))),
    "weights of another mode": (BAG, bag(weights=torch.ones(4), mode=2)),
    "indices with two axes": (BAG, bag(indices=IDS[None])),
    "indices that are no integers": (BAG, bag(indices=IDS.float())),
    "a table of integers": (BAG, bag(weight=TABLE.long())),
    "the private bag, with an index beyond": ("aten._embedding_bag.default", [TABLE, IDS + 3, STARTS]),
    "an axis beyond": (f"{FFT}r2c.default", [WAVE, [2], 0, True]),
    "an axis twice": (f"{FFT}r2c.default", [WAVE, [1, -1], 0, True]),
    "no axis": (f"{FFT}r2c.default", [WAVE, [], 0, True]),
    "a complex tensor as a real one": (f"{FFT}r2c.default", [HALF, [1], 0, True]),
    "an unknown normalization": (f"{FFT}c2c.default", [HALF, [1], 9, True]),
    "a real tensor as a complex one": (f"{FFT}c2c.default", [WAVE, [1], 0, True]),
    "more elements than are there": (f"{FFT}c2r.default", [HALF, [1], 0, 64]),
    "no elements": (f"{FFT}c2r.default", [HALF, [1], 0, 0]),
    "an empty axis": (f"{FFT}r2c.default", [WAVE[:, :0], [1], 0, True]),
    "negative repeats": ("aten.repeat_interleave.self_Tensor", [TABLE, torch.tensor([1, -1, 1, 1, 1]), 0]),
    "repeats of too few rows": ("aten.repeat_interleave.self_Tensor", [TABLE, torch.tensor([1, 1]), 0]),
    "a norm over several rows": ("aten._native_batch_norm_legit.no_stats", [WAVE, None, None, True, 0.1, 1e-5]),
    "a norm with other weights": (
        "aten._native_batch_norm_legit.no_stats",
        [WAVE[:1], torch.ones(3), None, True, 0.1, 1e-5],
    ),
    "lengths of too few slices": ("aten._weight_norm.default", [TABLE, torch.ones(4, 1), 0]),
    "slices along another axis": ("aten._weight_norm.default", [TABLE, torch.ones(5, 1), 2]),
    "lstm weights of too few gates": ("aten.lstm_cell.default", recurrent_step(4, ih=torch.ones(12, 3))),
    "lstm biases of too few gates": ("aten.lstm_cell.default", recurrent_step(4, b_hh=torch.ones(3))),
    "lstm with one state": ("aten.lstm_cell.default", recurrent_step(4, state=[torch.zeros(2, 4)])),
    "gru with another state": ("aten.gru_cell.default", recurrent_step(3, state=torch.zeros(2, 9))),
    "gru of mixed types": ("aten.gru_cell.default", recurrent_step(3, ih=torch.ones(12, 3).double())),
    "rnn with other features": ("aten.rnn_tanh_cell.default", recurrent_step(1, x=torch.ones(2, 7))),
}


@pytest.mark.parametrize("name", sorted(BAD))
def test_a_call_that_would_read_beyond_a_tensor_raises(name: str) -> None:
    operator, args = BAD[name]
    assert fate(lambda: functions.resolve(operator)(*args)) == "raised"


def test_good_bags_compute() -> None:
    for mode, name in enumerate(("sum", "mean", "max")):
        expected = torch.nn.functional.embedding_bag(IDS, TABLE, STARTS, mode=name)
        assert torch.equal(functions.resolve(BAG)(*bag(mode=mode))[0], expected)
    assert functions.resolve(BAG)(*bag(indices=IDS[:0], offsets=STARTS[:0]))[0].shape == (0, 4)
    ends = torch.tensor([0, 1, 3, 4])
    expected = torch.nn.functional.embedding_bag(IDS, TABLE, ends, mode="sum", include_last_offset=True)
    assert torch.equal(functions.resolve(BAG)(*bag(offsets=ends, last=True))[0], expected)


def test_good_transforms_compute() -> None:
    spectrum = functions.resolve(f"{FFT}r2c.default")(WAVE, [1], 0, True)
    assert torch.equal(spectrum, torch.fft.rfft(WAVE))
    assert torch.equal(functions.resolve(f"{FFT}c2r.default")(spectrum, [-1], 2, 8), torch.fft.irfft(spectrum))
    assert torch.equal(functions.resolve(f"{FFT}c2c.default")(spectrum, [0, 1], 0, True), torch.fft.fft2(spectrum))


@pytest.mark.parametrize(("name", "gates"), [("lstm_cell", 4), ("gru_cell", 3), ("rnn_tanh_cell", 1)])
def test_good_steps_compute(name: str, gates: int) -> None:
    args = recurrent_step(gates)
    mine = functions.resolve(f"aten.{name}.default")(*args)
    theirs = getattr(torch.ops.aten, name)(*args)
    assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))
