"""What every kind of axis means for batching, with one small real model for each, asked through the real engine.

Every answer is compared with the module's own, to the same request alone.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from headway_api.podconfig import Verdict
from headway_runtime.buckets import resolve_buckets
from headway_runtime.errors import FatalError, InvalidRequestError
from headway_runtime.fit import ceilings
from headway_runtime.memory import Room
from headway_runtime.program import load_program
from headway_runtime.program.load import read_document
from torch import nn
from torch.export import Dim

from tests.unit.engine_desk import Desk
from tests.unit.small_models import prepare

BATCH = Dim("batch", min=1, max=16)
AUTO = Dim.AUTO
Inputs = dict[str, Any]


def numbers(*shape: int) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(sum(shape) + len(shape)))


def exported(module: nn.Module, inputs: Inputs, shapes: Inputs, folder: Path) -> Path:
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(module.eval(), (), inputs, dynamic_shapes=shapes, strict=False)
    torch.export.save(program, folder / "model.pt2")
    return prepare(folder / "model.pt2", folder / "prepared")


@contextmanager
def desk(module: nn.Module, inputs: Inputs, shapes: Inputs, folder: Path, **batching: Any) -> Iterator[Desk]:
    with Desk.of(exported(module, inputs, shapes, folder), **batching) as made:
        yield made


def check(made: Desk, module: nn.Module, *requests: dict[str, torch.Tensor]) -> None:
    """All requests are answered as the module answers each of them alone."""
    for request, answer in zip(requests, made.ask(*requests), strict=True):
        with torch.no_grad():
            expected = [
                value if isinstance(value, torch.Tensor) else torch.tensor(value)
                for value in torch.utils._pytree.tree_leaves(module(**request))
                if value is not None
            ]
        assert len(answer) == len(expected)
        for one, other in zip(answer, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def most_rows(made: Desk) -> int:
    return max(record.rows for record in made.runs)


class Several(nn.Module):
    """Several outputs, the batch on another axis of each, and one nested in a dict."""

    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        return {"plain": x * 2, "turned": x.T, "more": {"kept": x[:, None, :].expand(-1, 2, -1)}}


def test_outputs_are_cut_on_the_batch_axis_wherever_it_stands(tmp_path: Path) -> None:
    module = Several()
    with desk(module, {"x": numbers(3, 4)}, {"x": {0: BATCH}}, tmp_path) as made:
        assert [output["name"] for output in made.model.describe()["outputs"]] == ["plain", "turned", "more.kept"]
        assert made.model.layout.outputs == (0, 1, 0)
        check(made, module, {"x": numbers(1, 4)}, {"x": numbers(2, 4)}, {"x": numbers(1, 4) + 1})
        assert most_rows(made) == 4


class Counting(nn.Module):
    """A tensor, and numbers computed from sizes: one along the words, which all rows of a run share."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, int]:
        return x.cumsum(1), 2 * x.shape[1] + 1


def test_a_number_computed_from_another_size_keeps_nobody_from_sharing_a_run(tmp_path: Path) -> None:
    module, shapes = Counting(), {"x": {0: BATCH, 1: Dim("words", min=1, max=16)}}
    with desk(module, {"x": numbers(3, 4)}, shapes, tmp_path) as made:
        assert made.model.layout.batch == "batch"
        check(made, module, {"x": numbers(1, 4)}, {"x": numbers(2, 4)}, {"x": numbers(1, 5)}, {"x": numbers(1, 5) + 1})
        assert most_rows(made) == 3
        (report,) = made.model.padding  # of a shorter request it would be the number of the longer one
        assert report.verdict is Verdict.UNPROVEN
        assert "output output_1 differs" in report.message


class CountingRows(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, int]:
        return x + 1, x.shape[0] * 2


def test_a_number_of_rows_is_each_requests_own(tmp_path: Path) -> None:
    module = CountingRows()
    with desk(module, {"x": numbers(3, 4)}, {"x": {0: BATCH}}, tmp_path) as made:
        assert made.model.layout.batch is None
        assert "output output_1 is computed from the number of rows" in (made.model.layout.reason or "")
        check(made, module, {"x": numbers(1, 4)}, {"x": numbers(3, 4)})


class Loss(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x + 1, x.mean()


def test_a_scalar_of_all_rows_is_each_requests_own(tmp_path: Path) -> None:
    module = Loss()
    with desk(module, {"x": numbers(3, 4)}, {"x": {0: BATCH}}, tmp_path) as made:
        assert made.model.layout.batch is None
        assert "output output_1 has no axis" in (made.model.layout.reason or "")
        check(made, module, {"x": numbers(1, 4)}, {"x": numbers(3, 4)})


class Framed(nn.Module):
    """Eight samples make a frame; the answer has one more than there are frames."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        frames = x.unflatten(1, (-1, 8)).mean(-1)
        return torch.cat([frames.new_zeros(frames.shape[0], 1), frames], dim=1)


def framed_shapes() -> Inputs:
    return {"x": {0: BATCH, 1: 8 * Dim("frames", min=1, max=8)}}


def test_a_derived_axis_takes_multiples_only_and_its_answer_is_cut_to_its_own_size(tmp_path: Path) -> None:
    module = Framed()
    sizes = {"batch": [1, 4], "samples": [16, 64]}
    with desk(
        module, {"x": numbers(3, 24)}, framed_shapes(), tmp_path, dimensions={"samples": "x.1"}, shapeBuckets=sizes
    ) as made:
        (report,) = made.model.padding
        assert report.verdict is Verdict.PROVEN, report.message  # every frame stands for itself
        check(made, module, *({"x": numbers(1, 8 * n)} for n in (2, 3, 8, 5)))
        assert most_rows(made) == 4
        with pytest.raises(InvalidRequestError, match="in steps of 8"):
            made.ask({"x": numbers(1, 12)})
        with pytest.raises(InvalidRequestError, match="samples"):
            made.ask({"x": numbers(1, 72)})


def test_a_bucket_of_a_derived_axis_is_a_size_of_the_axis(tmp_path: Path) -> None:
    directory = exported(Framed(), {"x": numbers(3, 24)}, framed_shapes(), tmp_path)
    with pytest.raises(FatalError, match="in steps of 8"):
        Desk.of(directory, dimensions={"samples": "x.1"}, shapeBuckets={"batch": [1, 4], "samples": [20]})


class Offset(nn.Module):
    """The weights of the words have one more than there are words."""

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        return x * (edges[:, 1:] - edges[:, :-1])


def test_an_axis_of_one_more_follows_the_one_that_names_it(tmp_path: Path) -> None:
    module, words = Offset(), Dim("words", min=1, max=15)
    inputs = {"x": numbers(3, 4), "edges": numbers(3, 5)}
    with desk(module, inputs, {"x": {0: BATCH, 1: words}, "edges": {0: BATCH, 1: words + 1}}, tmp_path) as made:
        requests = [{"x": numbers(1, n), "edges": numbers(1, n + 1)} for n in (4, 7, 4)]
        check(made, module, *requests)
        with pytest.raises(InvalidRequestError, match="edges"):
            made.ask({"x": numbers(1, 4), "edges": numbers(1, 4)})


class Scaled(nn.Module):
    def forward(self, x: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
        return x * factor


def test_only_requests_with_the_same_input_without_rows_share_a_run(tmp_path: Path) -> None:
    module = Scaled()
    with desk(module, {"x": numbers(3, 4), "factor": numbers(4)}, {"x": {0: BATCH}, "factor": None}, tmp_path) as made:
        assert made.model.layout.inputs == (0, None)
        requests = [{"x": numbers(1, 4) + n, "factor": numbers(4) + n % 2} for n in range(4)]
        check(made, module, *requests)
        assert [record.rows for record in made.runs] == [2, 2]


class WithConstants(nn.Module):
    def forward(self, x: torch.Tensor, times: int, name: str, bias: torch.Tensor | None = None) -> torch.Tensor:
        return x * times if bias is None or name == "none" else x * times + bias


def test_constants_of_the_call_are_no_inputs(tmp_path: Path) -> None:
    shapes = {"x": {0: BATCH}, "times": None, "name": None, "bias": None}
    inputs = {"x": numbers(3, 4), "times": 3, "name": "none", "bias": None}
    with desk(WithConstants(), inputs, shapes, tmp_path) as made:
        assert [each["name"] for each in made.model.describe()["inputs"]] == ["x"]
        answers = made.ask({"x": numbers(1, 4)}, {"x": numbers(2, 4)})
        assert torch.equal(answers[1][0], numbers(2, 4) * 3)


class Nested(nn.Module):
    def forward(self, batch: dict[str, Any]) -> dict[str, Any]:
        return {"scores": {"first": batch["text"]["ids"] * 2, "all": [batch["text"]["ids"] + batch["weight"]]}}


def test_nested_inputs_and_outputs_are_called_by_their_path(tmp_path: Path) -> None:
    inputs = {"batch": {"text": {"ids": numbers(3, 4)}, "weight": numbers(3, 4)}}
    shapes = {"batch": {"text": {"ids": {0: BATCH}}, "weight": {0: BATCH}}}
    with desk(Nested(), inputs, shapes, tmp_path) as made:
        assert [each["name"] for each in made.model.describe()["inputs"]] == ["batch.text.ids", "batch.weight"]
        assert [each["name"] for each in made.model.describe()["outputs"]] == ["scores.first", "scores.all.0"]
        requests = [{"batch.text.ids": numbers(n, 4), "batch.weight": numbers(n, 4) + 1} for n in (1, 2)]
        for request, (first, both) in zip(requests, made.ask(*requests), strict=True):
            assert torch.equal(first, request["batch.text.ids"] * 2)
            assert torch.equal(both, request["batch.text.ids"] + request["batch.weight"])
        assert most_rows(made) == 3


class Fixed(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


def test_a_program_of_fixed_sizes_runs_one_request_at_a_time_and_says_why(tmp_path: Path) -> None:
    with desk(Fixed(), {"x": numbers(2, 4)}, {"x": None}, tmp_path) as made:
        assert "the first axis of every input is fixed" in (made.model.layout.reason or "")
        check(made, Fixed(), {"x": numbers(2, 4)}, {"x": numbers(2, 4) + 1})
        with pytest.raises(InvalidRequestError, match="axis 0 is 3; it must be 2"):
            made.ask({"x": numbers(3, 4)})


def test_buckets_of_a_batch_that_is_not_there_are_refused_with_the_reason(tmp_path: Path) -> None:
    directory = exported(Fixed(), {"x": numbers(2, 4)}, {"x": None}, tmp_path)
    with pytest.raises(FatalError, match="the first axis of every input is fixed") as refused:
        Desk.of(directory, shapeBuckets={"batch": [1, 2]})
    assert refused.value.reason == "NotBatchable"


class Pairs(nn.Module):
    """Equal sizes must be equal."""

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return left + right


def test_sizes_that_are_one_must_be_equal_in_a_request(tmp_path: Path) -> None:
    module, words = Pairs(), Dim("words", min=1, max=16)
    shapes = {"left": {0: BATCH, 1: words}, "right": {0: BATCH, 1: words}}
    with desk(module, {"left": numbers(3, 4), "right": numbers(3, 4)}, shapes, tmp_path) as made:
        check(made, module, {"left": numbers(1, 4), "right": numbers(1, 4)})
        with pytest.raises(InvalidRequestError, match="input right, axis 1 is 5; it must be 4"):
            made.ask({"left": numbers(1, 4), "right": numbers(1, 5)})
        with pytest.raises(InvalidRequestError, match="input right, axis 0 is 2; it must be 1"):
            made.ask({"left": numbers(1, 4), "right": numbers(2, 4)})


class ButThree(nn.Module):
    """A branch that export resolved: the program is right for every number of rows but 3."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.shape[0] != 3 else x - 1


def test_guards_are_kept_for_the_batch_that_we_assemble(tmp_path: Path) -> None:
    directory = exported(ButThree(), {"x": numbers(4, 2)}, {"x": {0: AUTO}}, tmp_path)
    with Desk.of(directory, shapeBuckets={"batch": [1, 2, 4]}) as made:
        check(made, ButThree(), {"x": numbers(1, 2)}, {"x": numbers(2, 2)})  # three rows together
        with pytest.raises(InvalidRequestError, match="!= 3"):
            made.ask({"x": numbers(3, 2)})


class Plain(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x) * 3


class Squeezed(nn.Module):
    """Loses its first axis when there is one row only."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.squeeze(0) * 3


class Special(nn.Module):
    """Doubles a single row: for two and more, the program is the same as without."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * (1 + 1 // x.shape[0])


def test_a_lower_bound_that_export_wrote_by_itself_admits_one_row(tmp_path: Path) -> None:
    module = Plain()
    with desk(module, {"x": numbers(3, 4)}, {"x": {0: AUTO}}, tmp_path) as made:
        assert (made.model.layout.fewest, made.model.buckets.sizes["batch"][0]) == (1, 1)
        check(made, module, {"x": numbers(1, 4)})
        assert made.runs[0].sizes == {"batch": 1}


@pytest.mark.parametrize(("module", "why"), [(Squeezed, "declared"), (Special, "in a batch of two")])
def test_a_program_that_is_another_for_one_row_is_given_two(
    module: type[nn.Module], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with desk(module(), {"x": numbers(3, 4)}, {"x": {0: AUTO}}, tmp_path) as made:
        assert (made.model.layout.fewest, made.model.buckets.sizes["batch"][0]) == (2, 2)
        ((answer,),) = made.ask({"x": numbers(1, 4)})
        assert made.runs[0].sizes == {"batch": 2}
        factor = 3 if module is Squeezed else 1
        torch.testing.assert_close(answer, numbers(1, 4) * factor)


def test_a_bucket_of_one_that_was_asked_for_is_refused_where_the_program_is_another(tmp_path: Path) -> None:
    directory = exported(Special(), {"x": numbers(3, 4)}, {"x": {0: AUTO}}, tmp_path)
    with pytest.raises(
        FatalError, match="2 or more: output output_0 of a row is another one in a batch of two"
    ) as refused:
        Desk.of(directory, shapeBuckets={"batch": [1, 4]})
    assert (refused.value.reason, refused.value.field) == ("BucketOutOfRange", "spec.batching.shapeBuckets.batch")


class Squares(nn.Module):
    """A table of all pairs of words: memory grows with the square."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x.unsqueeze(2) * x.unsqueeze(1)).mean(2)


def test_a_request_beyond_the_largest_bucket_runs_alone(tmp_path: Path) -> None:
    module, words = Squares(), Dim("words", min=1, max=64)
    shapes, sizes = {"x": {0: BATCH, 1: words}}, {"batch": [1, 4], "words": [8]}
    more: dict[str, Any] = {"dimensions": {"words": "x.1"}, "shapeBuckets": sizes, "padding": "Trusted"}
    directory = exported(module, {"x": numbers(3, 4)}, shapes, tmp_path)
    with Desk.of(directory, **more) as made, pytest.raises(InvalidRequestError, match="words is 9; at most 8"):
        made.ask({"x": numbers(1, 9)})
    with Desk.of(directory, oversize="RunUnpadded", **more) as made:
        check(made, module, {"x": numbers(1, 9)}, {"x": numbers(1, 8)}, {"x": numbers(1, 64)})
        assert sorted(record.sizes["words"] for record in made.runs) == [8, 9, 64]
        with pytest.raises(InvalidRequestError, match=r"\(words\) is 65; allowed is 1 to 64"):
            made.ask({"x": numbers(1, 65)})


def test_how_far_a_request_may_go_is_what_its_memory_allows(tmp_path: Path) -> None:
    words = Dim("words", min=1, max=2**20)
    directory = exported(Squares(), {"x": numbers(3, 4)}, {"x": {0: BATCH, 1: words}}, tmp_path)
    program = load_program(directory, dimension_names={"words": "x.1"})
    buckets = resolve_buckets(program, {"batch": [1, 4], "words": [8]})
    _, document = read_document(directory)
    found = ceilings(document, program, buckets, room=Room(1 << 20, "a megabyte"), in_use=0)
    table = 4 * (found["words"] or 0) ** 2
    assert 0.9 * 2**20 < table <= 2**20
    assert found["batch"] is None, "16 rows of 8 words fit"
