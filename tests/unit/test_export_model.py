"""`export_model`: what it writes says more than a plain export, and what it must not write it refuses to."""

import base64
import json
from pathlib import Path

import pytest
import torch
from headway_runtime.export import Size, export_model
from headway_runtime.prepare import inspection, repack
from headway_runtime.program import load_program


class Pair(torch.nn.Module):
    """a [rows, width], b [rows, width] -> their product and sum."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return a * b, a + b


AXES = {0: Size("rows", 1, 8), 1: Size("width", 2, None)}
INPUTS = {"a": torch.ones(3, 4), "b": torch.ones(3, 4)}


def test_names_of_dimensions_and_outputs_arrive(tmp_path: Path) -> None:
    path = tmp_path / "pair.pt2"
    export_model(
        Pair().eval(),
        INPUTS,
        path=path,
        dynamic_shapes={"a": AXES, "b": AXES},
        outputs=["product", "sum"],
        samples=[INPUTS],
    )
    found = inspection.inspect(str(path))
    repack.repack(found, path, tmp_path)
    program = load_program(tmp_path, dimension_names={})
    assert [(d.name, d.min, d.max) for d in program.dimensions.values()] == [("rows", 1, 8), ("width", 1, None)]
    assert [o.name for o in program.outputs] == ["product", "sum"]
    assert program.batch == "rows"
    (sample,) = json.loads(repack.samples_file(tmp_path, "model").read_bytes())
    assert [t["shape"] for t in sample["outputs"]] == [[3, 4], [3, 4]]
    assert [r.tolist() for r in program.run([torch.full((1, 2), 3.0), torch.ones(1, 2)])] == [
        [[3.0, 3.0]],
        [[4.0, 4.0]],
    ]


class Difference(torch.nn.Module):
    """A parameter that is left out, one by keyword only, and any others."""

    def forward(
        self, a: torch.Tensor, scale: float = 1.0, *, b: torch.Tensor, **more: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        return {"difference": (a - b) * scale + more["c"]}


def test_inputs_go_to_the_arguments_of_their_name_whatever_their_order(tmp_path: Path) -> None:
    path = tmp_path / "difference.pt2"
    inputs = {"c": torch.zeros(3, 4), "b": torch.full((3, 4), 2.0), "a": torch.full((3, 4), 5.0)}
    rows = {0: Size("rows", 1, 8)}
    export_model(Difference().eval(), inputs, path=path, dynamic_shapes=dict.fromkeys(inputs, rows), samples=[inputs])
    repack.repack(inspection.inspect(str(path)), path, tmp_path)
    program = load_program(tmp_path, dimension_names={})
    assert [i.name for i in program.inputs] == ["a", "b", "c"]
    (answer,) = program.run([inputs[i.name][:2] for i in program.inputs])
    assert answer.tolist() == [[3.0] * 4] * 2
    (sample,) = json.loads(repack.samples_file(tmp_path, "model").read_bytes())
    assert sample["inputs"][0]["data"] != sample["inputs"][1]["data"]
    assert [
        torch.frombuffer(bytearray(base64.b64decode(t["data"])), dtype=torch.float32)[0] for t in sample["inputs"]
    ] == [5, 2, 0]


def test_inputs_that_forward_does_not_take_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"\['a', 'z'\]: missing a required argument: 'b'"):
        export_model(Pair().eval(), {"a": torch.ones(3), "z": torch.ones(3)}, path=tmp_path / "x", dynamic_shapes={})


def test_no_example_inputs_are_pickled(tmp_path: Path) -> None:
    path = tmp_path / "pair.pt2"
    export_model(Pair().eval(), INPUTS, path=path, dynamic_shapes={})
    assert b"_rebuild_tensor" not in path.read_bytes()


def test_a_module_in_training_mode_is_not_exported(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="eval"):
        export_model(Pair().train(), INPUTS, path=tmp_path / "x.pt2", dynamic_shapes={})


def test_a_dimension_of_an_unknown_input_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"\['c'\]"):
        export_model(Pair().eval(), INPUTS, path=tmp_path / "x.pt2", dynamic_shapes={"c": AXES})
