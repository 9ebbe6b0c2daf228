"""Names, ranges and guards of the dynamic sizes of a program, without a tensor in sight."""

from typing import Any

import pytest
from headway_runtime.prepare.sizes import expression as ex
from headway_runtime.program import ProgramError, ShapeError, TensorSpec
from headway_runtime.program import dimensions as dims

S0, S1 = ex.symbol("s0"), ex.symbol("s1")
IDS, MASK = TensorSpec("ids", "INT64", (S0, S1)), TensorSpec("mask", "INT64", (S0, S1))
EMBEDDING = TensorSpec("embedding", "FP32", (S0, 384))


def resolve(
    inputs: tuple[TensorSpec, ...] = (IDS, MASK),
    outputs: tuple[TensorSpec, ...] = (EMBEDDING,),
    *,
    ranges: dict[str, tuple[int, int | None]] | None = None,
    guards: tuple[ex.Expr, ...] = (),
    recorded: tuple[tuple[str, int, str], ...] = (),
    configured: dict[str, str] | None = None,
) -> dims.Dimensions:
    used = ranges or {"s0": (1, 64), "s1": (1, 256)}
    return dims.resolve(inputs, outputs, ranges=used, guards=guards, recorded=recorded, configured=configured or {})


def test_the_batch_is_named_and_the_rest_is_called_by_input_and_axis() -> None:
    found = resolve()
    assert list(found.by_name) == ["batch", "ids.1"]
    assert dims.batch_of(found, (EMBEDDING,), stateful=None) == ("batch", None)


def test_a_recorded_name_comes_before_a_configured_one_for_other_sizes() -> None:
    found = resolve(recorded=(("ids", 0, "rows"),), configured={"sequence": "mask.1"})
    assert list(found.by_name) == ["rows", "sequence"]
    assert dims.batch_of(found, (EMBEDDING,), stateful=None) == ("rows", None)


@pytest.mark.parametrize(
    ("configured", "message"),
    [
        ({"sequence": "words.1"}, "no input 'words'; it has ids, mask"),
        ({"sequence": "ids.2"}, "has 2 axes"),
        ({"sequence": "ids"}, "not of the form"),
        ({"a": "ids.1", "b": "mask.1"}, "already called 'a'"),
        ({"batch": "ids.1"}, ""),
    ],
)
def test_a_configured_name_that_points_at_nothing_names_the_field(configured: dict[str, str], message: str) -> None:
    if not message:  # a name of the user's choice may even be "batch"; the batch then goes by its axis
        assert list(resolve(configured=configured).by_name) == ["ids.0", "batch"]
        return
    with pytest.raises(ProgramError, match=message) as error:
        resolve(configured=configured)
    assert error.value.reason == "UnknownDimension"
    assert error.value.field == f"spec.batching.dimensions.{list(configured)[-1]}"


def test_a_name_for_a_fixed_axis_says_that_it_is_fixed() -> None:
    with pytest.raises(ProgramError, match="fixed at 4"):
        resolve((TensorSpec("x", "FP32", (S0, 4)),), ranges={"s0": (1, 8)}, configured={"width": "x.1"})


def test_shapes_bind_to_sizes_and_what_does_not_fit_is_named() -> None:
    found = resolve(configured={"sequence": "ids.1"})
    assert found.bind([(3, 7), (3, 7)]) == {"batch": 3, "sequence": 7}
    with pytest.raises(ShapeError, match=r"input mask, axis 1 is 8; it must be 7 \(sequence") as error:
        found.bind([(3, 7), (3, 8)])
    assert (error.value.input, error.value.axis) == ("mask", 1)
    with pytest.raises(ShapeError, match=r"input ids, axis 0 \(batch\) is 65; allowed is 1 to 64"):
        found.bind([(65, 7), (65, 7)])
    with pytest.raises(ShapeError, match="input ids has 2 axes"):
        found.bind([(3,), (3, 7)])
    with pytest.raises(ShapeError, match="2 inputs are needed"):
        found.bind([(3, 7)])


def test_a_derived_axis_is_read_backwards_and_must_come_out_whole() -> None:
    x = TensorSpec("x", "FP32", (ex.call("mul", ex.const(8), S0), 4))
    y = TensorSpec("y", "FP32", (ex.call("add", S0, ex.const(1)),))
    found = resolve((x, y), (x,), ranges={"s0": (2, 10)}, configured={"frames": "x.0"})
    assert found.by_name["frames"].min == 8  # 2 is what export writes by itself, so 1 is admitted: 8 x 1
    assert found.by_name["frames"].max == 80
    assert found.bind([(24, 4), (4,)]) == {"frames": 24}
    with pytest.raises(ShapeError, match="in steps of 8"):
        found.bind([(25, 4), (4,)])
    with pytest.raises(ShapeError, match="input y, axis 0 is 5; it must be 4"):
        found.bind([(24, 4), (5,)])
    assert found.shape(y, {"frames": 24}) == (4,)
    assert "in steps of 8" in (found.check({"frames": 25}) or "")


def test_guards_are_checked_for_the_sizes_that_run() -> None:
    guard = ex.call("eq", ex.call("mod", ex.call("mul", S0, S1), ex.const(8)), ex.const(0))
    found = resolve(guards=(guard,), configured={"sequence": "ids.1"})
    assert found.check({"batch": 2, "sequence": 4}) is None
    violated = found.check({"batch": 3, "sequence": 5})
    assert violated is not None
    assert "((batch*sequence) % 8) == 0" in violated
    assert "batch = 3, sequence = 5" in violated
    assert "64" in (found.check({"batch": 65, "sequence": 4}) or "")
    assert "no size for dimension sequence" in (found.check({"batch": 1}) or "")
    assert "no dimension width" in (found.check({"batch": 1, "sequence": 8, "width": 1}) or "")


def test_a_lower_bound_of_two_admits_one_when_the_guards_hold_for_it() -> None:
    spec = TensorSpec("x", "FP32", (S0,))
    assert resolve((spec,), (spec,), ranges={"s0": (2, None)}).by_name["batch"].min == 1
    guard = ex.call("ne", S0, ex.const(1))
    assert resolve((spec,), (spec,), ranges={"s0": (2, None)}, guards=(guard,)).by_name["batch"].min == 2
    assert resolve((spec,), (spec,), ranges={"s0": (3, None)}).by_name["batch"].min == 3


@pytest.mark.parametrize(
    ("inputs", "outputs", "why"),
    [
        ((TensorSpec("x", "FP32", (4, S0)),), (TensorSpec("y", "FP32", (S0,)),), "first axis of every input is fixed"),
        ((TensorSpec("x", "FP32", (S0, 3)),), (TensorSpec("total", "FP32", (3,)),), "output total has no axis"),
        ((TensorSpec("x", "FP32", (S0,)),), (TensorSpec("y", "FP32", (S0, S0)),), "exactly one axis"),
        (
            (TensorSpec("x", "FP32", (S0,)), TensorSpec("z", "FP32", (S1,))),
            (TensorSpec("y", "FP32", (S0, S1)),),
            "several dynamic",
        ),
    ],
)
def test_a_program_without_a_batch_says_why(
    inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...], why: str
) -> None:
    ranges: dict[str, tuple[int, int | None]] = {"s0": (1, 8), "s1": (1, 8)}
    batch, reason = dims.batch_of(resolve(inputs, outputs, ranges=ranges), outputs, stateful=None)
    assert batch is None
    assert why in (reason or "")


def test_a_batch_may_stand_on_any_axis_of_an_output() -> None:
    outputs = (TensorSpec("y", "FP32", (3, S0)), TensorSpec("z", "FP32", (S0, S1)))
    assert dims.batch_of(resolve(outputs=outputs), outputs, stateful=None) == ("batch", None)


@pytest.mark.parametrize("names", [{"recorded": (("x", 1, "batch"),)}, {"configured": {"batch": "x.1"}}])
def test_a_program_with_time_first_and_the_batch_second_is_not_joined_along_time(names: dict[str, Any]) -> None:
    spec = TensorSpec("x", "FP32", (S0, S1, 8))
    found = resolve((spec,), (spec,), **names)
    batch, reason = dims.batch_of(found, (spec,), stateful=None)
    assert batch is None
    assert reason == "'batch' is the name of another size than x.0, along which requests could be joined"


def test_a_program_with_state_is_not_batched() -> None:
    batch, reason = dims.batch_of(resolve(), (EMBEDDING,), stateful="cache")
    assert batch is None
    assert "cache" in (reason or "")


def test_a_size_that_no_input_axis_determines_is_an_error() -> None:
    spec = TensorSpec("x", "FP32", (ex.call("mul", S0, S0),))
    with pytest.raises(ProgramError, match=r"input.symbol"):
        resolve((spec,), (spec,), ranges={"s0": (1, 8)})
