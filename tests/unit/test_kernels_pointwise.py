"""Norm, rotation and gate in native code, against the same in plain torch."""

import math

import pytest
import torch
from headway_runtime.kernels.library import Library, native
from headway_runtime.kernels.pointwise import GELU_TANH, SILU, Pointwise

LIBRARY = native()
pytestmark = pytest.mark.skipif(LIBRARY is None, reason="no native kernels for this processor")


@pytest.fixture(params=range(LIBRARY.best + 1 if LIBRARY else 1))
def kernels(request: pytest.FixtureRequest) -> Pointwise:
    return Pointwise(Library(level=request.param, threads=2))


def normed(x: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    return x.double() * torch.rsqrt(x.double().pow(2).mean(-1, keepdim=True) + epsilon) * weight.double()


def close(found: torch.Tensor, wanted: torch.Tensor) -> None:
    torch.testing.assert_close(found, wanted.float(), rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("shape", [(1, 1, 576), (1, 13, 640), (7, 4, 16), (3, 5), (2, 1), (300, 576)])
def test_a_norm(shape: tuple[int, ...], kernels: Pointwise) -> None:
    x, more, weight = torch.randn(shape) * 3, torch.randn(shape), torch.randn(shape[-1])
    close(kernels.norm(x, weight, 1e-5), normed(x, weight, 1e-5))
    total, y = kernels.add_norm(x, more, weight, 1e-6)
    assert torch.equal(total, x + more)
    close(y, normed(x + more, weight, 1e-6))


@pytest.mark.parametrize(("tokens", "heads", "width"), [(1, 9, 64), (13, 3, 80), (5, 1, 256), (4, 2, 6), (200, 9, 64)])
def test_a_rotation(tokens: int, heads: int, width: int, kernels: Pointwise) -> None:
    x = torch.randn(tokens, heads, width)
    cos, sin = torch.randn(1, tokens, width), torch.randn(1, tokens, width)
    low, high = x[..., : width // 2], x[..., width // 2 :]
    wanted = x * cos[0, :, None] + torch.cat([-high, low], -1) * sin[0, :, None]
    close(kernels.rotate(x.view(1, tokens, heads * width), cos, sin, heads), wanted)


@pytest.mark.parametrize("shape", [(1, 1, 1536), (1, 7, 33), (5,), (300, 1024)])
def test_a_gate(shape: tuple[int, ...], kernels: Pointwise) -> None:
    x, by = torch.randn(shape) * 4, torch.randn(shape)
    close(kernels.gate(x, by, SILU), torch.nn.functional.silu(x.double()) * by)
    close(kernels.gate(x, by, GELU_TANH), torch.nn.functional.gelu(x.double(), approximate="tanh") * by)


def test_far_numbers_stay_what_they_are(kernels: Pointwise) -> None:
    x = torch.tensor([math.inf, -math.inf, math.nan, 1e30, -1e30, 0.0, -0.0, 100.0, -100.0] * 4)
    for kind, torchs in ((SILU, torch.nn.functional.silu), (GELU_TANH, gelu)):
        found, wanted = kernels.gate(x, torch.ones_like(x), kind), torchs(x)
        finite = x.isfinite()
        close(found[finite], wanted[finite])
        assert found[~finite & (x != -math.inf)].isfinite().any().logical_not()


def gelu(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.gelu(x, approximate="tanh")


def test_a_row_does_not_depend_on_those_beside_it(kernels: Pointwise) -> None:
    x, weight = torch.randn(200, 576), torch.randn(576)
    assert torch.equal(kernels.norm(x, weight, 1e-5)[77:78], kernels.norm(x[77:78], weight, 1e-5))


def test_what_is_not_dense_is_made_so(kernels: Pointwise) -> None:
    x, by = torch.randn(64, 8).T, torch.randn(64, 8).T
    close(kernels.gate(x, by, SILU), torch.nn.functional.silu(x) * by)
    close(kernels.norm(x, torch.ones(64), 1e-5), normed(x, torch.ones(64), 1e-5))


def test_nothing_is_an_answer_to_nothing(kernels: Pointwise) -> None:
    empty = torch.zeros(0, 16)
    assert kernels.norm(empty, torch.ones(16), 1e-5).shape == (0, 16)
    assert kernels.rotate(empty, empty, empty, 2).shape == (0, 2, 16)
    assert kernels.gate(empty, empty, SILU).shape == (0, 16)


def test_sizes_that_do_not_fit_are_refused(kernels: Pointwise) -> None:
    x = torch.zeros(3, 16)
    with pytest.raises(RuntimeError, match="the weight"):
        kernels.norm(x, torch.ones(8), 1e-5)
    with pytest.raises(RuntimeError, match="the weight"):
        kernels.norm(x, torch.ones(32)[::2], 1e-5)
    with pytest.raises(RuntimeError, match="float32"):
        kernels.norm(x.double(), torch.ones(16), 1e-5)
    with pytest.raises(RuntimeError, match="cannot be added"):
        kernels.add_norm(x, x[:2], torch.ones(16), 1e-5)
    with pytest.raises(RuntimeError, match="2 heads"):
        kernels.rotate(x, torch.zeros(3, 16), torch.zeros(3, 16), 2)
    with pytest.raises(RuntimeError, match="heads"):
        kernels.rotate(torch.zeros(3, 5), torch.zeros(3, 5), torch.zeros(3, 5), 1)
    with pytest.raises(RuntimeError, match="gate"):
        kernels.gate(x, x[:, :8], SILU)


def test_a_view_that_negates_its_memory_is_read_as_what_it_says(kernels: Pointwise) -> None:
    x, by = torch._neg_view(torch.randn(3, 16)), torch.randn(3, 16)
    assert torch.equal(kernels.gate(x, by, SILU), kernels.gate(x.clone(), by, SILU))
    assert torch.equal(kernels.norm(x, by[0], 1e-5), kernels.norm(x.clone(), by[0], 1e-5))
