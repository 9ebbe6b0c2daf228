"""`export_model`: what it writes says more than a plain export, and what it must not write it refuses to."""

import json
from pathlib import Path

import pytest
import torch
from headway_runtime.prepare import inspection, repack
from headway_runtime.program import load_program
from headway_runtime.program.export import Size, export_model


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
    (sample,) = json.loads((tmp_path / repack.SAMPLES).read_bytes())
    assert [t["shape"] for t in sample["outputs"]] == [[3, 4], [3, 4]]
    assert [r.tolist() for r in program.run([torch.full((1, 2), 3.0), torch.ones(1, 2)])] == [
        [[3.0, 3.0]],
        [[4.0, 4.0]],
    ]


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
