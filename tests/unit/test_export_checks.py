"""What exporting refuses, in words that help; and that nothing is written then."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from headway_runtime import parity
from headway_runtime.export import Exported, ExportError, Facts, Size, annotate, export_model
from headway_runtime.prepare import inspection
from headway_runtime.prepare.beside import record
from headway_runtime.prepare.container.archive import open_archive
from torch.utils import _pytree as pytree

ROWS, WIDTH = Size("rows", 1, 8), Size("width", 2, 32)


class Model(torch.nn.Module):
    """A module whose forward is a function of x."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(self, x)


def export(path: Path, function: Any, example: torch.Tensor | None = None, **options: Any) -> Exported:
    example = torch.rand(3, 8) if example is None else example
    shapes = options.pop("dynamic_shapes", {"x": {0: ROWS}})
    return export_model(Model(function).eval(), {"x": example}, path=path, dynamic_shapes=shapes, **options)


def refused(path: Path, function: Any, example: torch.Tensor | None = None, **options: Any) -> str:
    with pytest.raises(ExportError) as failed:
        export(path, function, example, **options)
    assert not path.exists()
    assert list(path.parent.iterdir()) == []
    return str(failed.value)


def test_the_result_says_what_was_written_and_how_it_was_proven(tmp_path: Path) -> None:
    done = export(tmp_path / "m.pt2", lambda self, x: x.sin())
    assert (done.bytes, done.samples, done.runs, done.notes) == ((tmp_path / "m.pt2").stat().st_size, 1, 3, ())
    assert done.digest.startswith("sha256:")
    assert list(tmp_path.iterdir()) == [tmp_path / "m.pt2"], "nothing else is left"


def test_a_part_in_training_mode_is_named(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout()).eval()
    model[1].train()
    with pytest.raises(ExportError, match=r"1 is in training mode; call \.eval\(\)"):
        export_model(model, {"input": torch.rand(3, 8)}, path=tmp_path / "m.pt2", dynamic_shapes={})


@pytest.mark.parametrize(
    ("example", "shapes", "words"),
    [
        (torch.rand(1, 8), {0: ROWS}, "axis 0 (rows) of input x is 1 in the example, which torch.export takes for a"),
        (torch.rand(9, 8), {0: ROWS}, "is 9 in the example, and rows:1..8 was declared"),
        (torch.rand(3, 8), {2: ROWS}, "input x has 2 axes in the example, so none is number 2"),
        (torch.rand(3, 8), {0: ROWS, 1: ROWS}, "axis 1 (rows) of input x is 8 in the example, but axis 0 (rows)"),
        (torch.rand(3, 8), {0: ROWS, 1: Size("rows", 1, 9)}, "rows has two ranges, rows:1..8 and rows:1..9"),
        (torch.rand(3, 8), {1: Size("width", 8, 64, step=8)}, "is 8 in the example, which torch.export takes for a"),
        (torch.rand(3, 17), {1: Size("width", 8, 64, step=8)}, "is 17 in the example, and width:8..64/8 was declared"),
    ],
)
def test_an_example_that_does_not_fit_what_is_declared(
    tmp_path: Path, example: torch.Tensor, shapes: dict[int, Size], words: str
) -> None:
    assert words in refused(tmp_path / "m.pt2", lambda self, x: x, example, dynamic_shapes={"x": shapes})


@pytest.mark.parametrize(("name", "low", "high"), [("Batch", 1, 8), ("a b", 1, 8), ("batch", 1, 1), ("batch", 9, 8)])
def test_a_size_that_cannot_be(name: str, low: int, high: int) -> None:
    with pytest.raises(ExportError, match=r"lower-case|maximum"):
        Size(name, low, high)


def test_forwards_signature_is_shown_when_it_does_not_fit(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"forward cannot be called .* its signature is forward\(x: torch\.Tensor\)"):
        export_model(Model(None).eval(), {"y": torch.rand(2)}, path=tmp_path / "m", dynamic_shapes={})
    with pytest.raises(ExportError, match=r"input x is a float; every input is a tensor"):
        export_model(Model(None).eval(), {"x": 1.0}, path=tmp_path / "m", dynamic_shapes={})  # type: ignore[dict-item]
    with pytest.raises(ExportError, match=r"a torch\.nn\.Module is exported, not a function"):
        export_model(lambda x: x, {"x": torch.rand(2)}, path=tmp_path / "m", dynamic_shapes={})


def test_a_model_that_fails_is_told_as_such(tmp_path: Path) -> None:
    text = refused(tmp_path / "m.pt2", lambda self, x: x @ x)
    assert "the model fails on inputs of shape x [3, 8]: RuntimeError" in text


def eights(self: Model, x: torch.Tensor) -> torch.Tensor:
    return x.reshape(x.shape[0], -1, 8).sum(1) if x.shape[1] % 8 == 0 else x


def test_a_size_in_steps_is_suggested_and_works(tmp_path: Path) -> None:
    axes = {0: ROWS, 1: Size("width", 1, 64)}
    text = refused(tmp_path / "m.pt2", eights, torch.rand(3, 16), dynamic_shapes={"x": axes})
    assert 'write Size("width", 8, 64, step=8), or width:8..64/8 in --input' in text
    assert "x.shape[1]" in text
    axes[1] = Size("width", 8, 64, step=8)
    done = export(tmp_path / "m.pt2", eights, torch.rand(3, 16), dynamic_shapes={"x": axes})
    assert done.notes == ("width:8..64/8 was declared, and the program takes 16 to 64 in steps of 8",)
    document = inspection.inspect(str(tmp_path / "m.pt2")).document
    assert ["x", 1, "width"] in document["dimensions"]


def test_a_size_that_the_model_fixes_is_told(tmp_path: Path) -> None:
    text = refused(tmp_path / "m.pt2", lambda self, x: x + x.reshape(3, 8).sum())
    assert "the model does not hold for every size that was declared" in text
    assert "write 3 for rows, which the model fixes" in text


def test_sizes_that_are_always_equal_are_told(tmp_path: Path) -> None:
    class Sum(torch.nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return a + b

    inputs = {"a": torch.rand(3), "b": torch.rand(3)}
    shapes = {"a": {0: Size("one", 2, 8)}, "b": {0: Size("other", 2, 8)}}
    with pytest.raises(ExportError, match=r"one name for (one and other|other and one): they are always equal"):
        export_model(Sum().eval(), inputs, path=tmp_path / "m.pt2", dynamic_shapes=shapes)


def test_a_branch_on_a_value_is_told_with_its_place(tmp_path: Path) -> None:
    text = refused(tmp_path / "m.pt2", lambda self, x: x if x.sum() > 0 else -x)
    assert "the model decides something in Python by the value of a tensor" in text
    assert "use torch.where or torch.cond" in text


def test_what_torch_cannot_export_is_said_in_a_line_with_a_pointer(tmp_path: Path) -> None:
    text = refused(tmp_path / "m.pt2", lambda self, x: x * float(x.detach().numpy().sum()))
    assert text.startswith("torch cannot export the model")
    assert "docs/export.md" in text
    assert len(text) < 800


def test_what_a_pod_would_refuse_is_refused_in_its_words(tmp_path: Path) -> None:
    text = refused(tmp_path / "m.pt2", lambda self, x: torch.nn.functional.dropout(x, 0.0, training=True))
    assert "a pod would refuse this program (UnsafeArtifact)" in text
    assert "exported in training mode" in text
    text = refused(tmp_path / "m.pt2", lambda self, x: x.to(torch.complex64))
    assert "a pod would refuse this program (UnsupportedProgram)" in text or "complex64 cannot be recorded" in text


def python_branch(self: Model, x: torch.Tensor) -> torch.Tensor:
    return x * (2 if torch.compiler.is_exporting() else 3)


def test_a_program_that_answers_otherwise_than_its_module_is_not_written(tmp_path: Path) -> None:
    text = refused(tmp_path / "m.pt2", python_branch, torch.ones(3, 8))
    assert "the exported program does not answer as the module does, so nothing was written" in text
    assert "golden sample 0, output output_0: 24 of 24 values differ, the largest difference is 1 at [0, 0]" in text


def at_another_batch(self: Model, x: torch.Tensor) -> torch.Tensor:
    return x * (2 if x.shape[0] == 1 and not torch.compiler.is_exporting() else 3)


def test_batch_one_and_a_larger_batch_are_tried_too(tmp_path: Path) -> None:
    assert "golden sample 1" in refused(tmp_path / "m.pt2", at_another_batch, torch.ones(3, 8))


def test_a_failed_export_leaves_the_file_that_was_there(tmp_path: Path) -> None:
    export(tmp_path / "m.pt2", lambda self, x: x)
    before = (tmp_path / "m.pt2").read_bytes()
    with pytest.raises(ExportError):
        export(tmp_path / "m.pt2", python_branch)
    assert (tmp_path / "m.pt2").read_bytes() == before


def test_a_program_that_cannot_be_batched_is_written_with_a_note(tmp_path: Path) -> None:
    done = export(tmp_path / "m.pt2", lambda self, x: x, dynamic_shapes={})
    assert done.notes == (
        "pods run one request at a time: the first axis of every input is fixed; export with a dynamic batch axis",
    )


def counted(self: Model, x: torch.Tensor) -> torch.Tensor:
    self.calls += 1
    return x + self.calls


def test_a_module_that_counts_starts_afresh_for_every_sample_and_stays_as_it_was(tmp_path: Path) -> None:
    model, x = Model(counted).eval(), torch.zeros(3, 8)
    samples = [{"x": x}, {"x": x}]
    done = export_model(model, {"x": x}, path=tmp_path / "m.pt2", dynamic_shapes={"x": {0: ROWS}}, samples=samples)
    assert done.runs == 2
    assert model.calls.item() == 0


def overwritten(self: Model, x: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return x * 2


def test_examples_are_not_overwritten_by_a_module_that_writes_to_its_input(tmp_path: Path) -> None:
    x = torch.zeros(3, 8)
    export(tmp_path / "m.pt2", overwritten, x)
    assert x.sum() == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"task": "Text classification"}, "task: a word of lower-case letters"),
        ({"labels": ["a\n"]}, "labels: printable text"),
        ({"padding": {"y": 0}}, "padding of ['y']"),
        ({"outputs": ["a", "b"]}, "2 output names for 1 outputs"),
        ({"rtol": -1.0}, "tolerance: a number from 0 to 1000 is needed, not -1.0"),
        ({"samples": [{"y": torch.ones(2, 8)}]}, "a sample has the inputs ['y']; the model's are ['x']"),
        ({"samples": [{"x": torch.ones(9, 8)}]}, "axis 0 (rows) is 9; allowed is 1 to 8"),
        ({"samples": [{"x": torch.ones(8, 100_000)}]}, "the golden samples have 6,400,000 bytes; at most 4,194,304"),
        ({"tokenizer": "missing.json"}, "the tokenizer cannot be read"),
    ],
)
def test_facts_that_the_record_cannot_hold_are_told_by_their_name(
    tmp_path: Path, options: dict[str, Any], words: str
) -> None:
    example = torch.rand(3, 100_000) if "100_000" in str(options) else None
    assert words in refused(tmp_path / "m.pt2", lambda self, x: x, example, **options)


@pytest.mark.parametrize(
    ("function", "count", "words"),
    [
        (lambda self, x: x, 8, ""),
        (lambda self, x: x, 7, "there are 7 labels, and no output has as many classes: output_0 has 8; write one"),
        (lambda self, x: x, 9, "there are 9 labels (line 9 is empty), and no output"),
        (lambda self, x: x, 1, "there is 1 label, and no output"),
        (lambda self, x: (x[:, :2], x), 9, "output_0 has 2, output_1 has 8"),
        (lambda self, x: (x[:, :2], x), 8, ""),
        (lambda self, x: x.mean(1), 2, ""),
        (lambda self, x: x.mean(1), 3, "output_0 has 1;"),
        (lambda self, x: x.reshape(-1, 4, 2), 4, ""),  # along another axis, as those of a map of pixels are
        (lambda self, x: x.reshape(-1, 4, 2), 3, ""),  # beside the edges of a box, as a detector's are
        (lambda self, x: (x, x.argmax(1)), 5, ""),  # classes themselves: how many, nobody knows
    ],
)
def test_labels_are_as_many_as_the_classes(tmp_path: Path, function: Any, count: int, words: str) -> None:
    path, labels = tmp_path / "m.pt2", [f"class {number}" if number < 9 else "" for number in range(1, count + 1)]
    if words:
        assert words in refused(path, function, labels=labels)
    else:
        export(path, function, labels=labels)
        assert inspection.inspect(str(path)).document["facts"]["labels"] == labels


def test_labels_that_are_added_to_a_file_are_as_many_as_the_classes(tmp_path: Path) -> None:
    path = tmp_path / "m.pt2"
    export(path, lambda self, x: x)
    before = path.read_bytes()
    with pytest.raises(ExportError, match="there are 3 labels, and no output has as many classes: output_0 has 8"):
        annotate(path, path=path, given=Facts(labels=["a", "b", "c"]))
    assert path.read_bytes() == before


def test_examples_too_large_to_record_are_left_out_with_a_note(tmp_path: Path) -> None:
    done = export(tmp_path / "m.pt2", lambda self, x: x, torch.rand(3, 200_000))
    assert done.samples == 0
    assert "no golden sample is recorded" in done.notes[0]
    assert done.runs == 3, "it is proven all the same"


def test_every_fact_is_in_the_file(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text('{"model": {}}')
    path = tmp_path / "m.pt2"
    facts: dict[str, Any] = {"task": "doubling", "padding": {"x": 0.0}, "labels": ["a", "b"]}
    more: dict[str, Any] = {"preprocessing": {"size": 8, "crop": True}, "rtol": 0.1, "atol": 0.01}
    export(path, lambda self, x: x[:, :2], outputs=["y"], tokenizer=tmp_path / "tokenizer.json", **facts, **more)
    with open_archive(path) as archive:
        assert archive.read(record.TOKENIZER, 100) == b'{"model": {}}'
        written = json.loads(archive.read(record.NAME, record.MAX_BYTES))
    assert {k: written[k] for k in ("version", "torch", "device", "outputs")} == {
        "version": 1,
        "torch": torch.__version__.partition("+")[0],
        "device": "cpu",
        "outputs": ["y"],
    }
    document = inspection.inspect(str(path)).document
    assert document["facts"] == {
        **facts,
        "preprocessing": more["preprocessing"],
        "tolerance": {"rtol": 0.1, "atol": 0.01},
        "device": "cpu",
    }


class Answer(dict[str, Any]):
    """A registered mapping, as transformers' outputs are."""


pytree.register_pytree_node(
    Answer,
    lambda a: (list(a.values()), list(a)),
    lambda values, keys: Answer(zip(keys, values, strict=True)),
    serialized_type_name="tests.Answer",
    to_dumpable_context=json.dumps,
    from_dumpable_context=json.loads,
)


def test_nested_outputs_numbers_and_constants_line_up_with_the_programs(tmp_path: Path) -> None:
    def function(self: Model, x: torch.Tensor) -> Answer:
        return Answer(a=x + 1, b=(x.shape[0], {"c": x.sum(1)}), none=None, seven=7)

    done = export(tmp_path / "m.pt2", function)
    assert done.samples == 1
    found = inspection.inspect(str(tmp_path / "m.pt2"))
    assert [o["name"] for o in found.document["outputs"]] == ["a", "b.0", "b.1.c"]
    (sample,) = found.samples
    assert [parity._tensor(t).tolist() for t in sample["outputs"]][1] == 3


def test_more_names_than_outputs_are_told_as_what_was_asked_for(tmp_path: Path) -> None:
    said = refused(tmp_path / "model.pt2", lambda model, x: x + 1, outputs=["one", "two"])
    assert "what was asked for does not fit the program: 2 output names for 1 outputs" in said
    assert "headway.json" not in said
