"""`headway export` as a user types it: from code, from a file that exists, and every wrong way with what it says."""

import json
import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import Result
from headway_runtime.cli import app
from headway_runtime.cli.export import counted
from headway_runtime.export import Size, specs
from headway_runtime.export.errors import ExportError
from headway_runtime.parity import load_golden
from headway_runtime.prepare import inspection
from headway_runtime.program import load_program
from torch.export import Dim
from torch.export.pt2_archive._package import package_pt2
from typer.testing import CliRunner

from tests.unit.small_models import Encoder, Scaled, Summed, prepare
from tests.unit.small_models import export as plain_export

CODE = """
import torch
from neighbour import WORDS

class Sentiment(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(WORDS, 4)

    def forward(self, ids, mask):
        return (self.words(ids) * mask.unsqueeze(-1)).sum(1)

def make_model():
    torch.manual_seed(0)
    return Sentiment().eval()

ready = make_model()
training = Sentiment
text = "no model"

def broken():
    raise RuntimeError("no weights here")

def number():
    return 7
"""
IDS, MASK = "ids=int64[batch:1..64,sequence:1..256]", "mask=float32[batch,sequence]"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    name = f"author_{tmp_path.name.replace('-', '_')}"[:60]
    (tmp_path / f"{name}.py").write_text(CODE)
    (tmp_path / "neighbour.py").write_text("WORDS = 50\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", list(__import__("sys").path))
    monkeypatch.setenv("AUTHOR", name)
    return tmp_path


def author() -> str:
    return __import__("os").environ["AUTHOR"]


def export(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["export", *arguments])


def refused(*arguments: str) -> str:
    result = export(*arguments)
    assert result.exit_code == 1, result.output
    assert not Path("out.pt2").exists()
    return result.output


def exported(*arguments: str) -> Path:
    result = export(*arguments)
    assert result.exit_code == 0, result.output
    return Path(arguments[arguments.index("-o") + 1]).resolve()


@pytest.mark.parametrize("form", ["{}.py:make_model", "{}:make_model", "{}:ready"])
def test_code_becomes_a_file_that_is_named_proven_and_golden(folder: Path, form: str) -> None:
    source = form.format(author())
    path = exported(source, "-o", "out.pt2", "-i", IDS, "-i", MASK, "--output", "sum", "--range", "ids=0..49")
    program = load_program(prepare(path, folder / "model"), dimension_names={})
    assert [(d.name, d.min, d.max) for d in program.dimensions.values()] == [("batch", 1, 64), ("sequence", 1, 256)]
    assert [o.name for o in program.outputs] == ["sum"]
    golden = load_golden(folder / "model", None)
    assert golden.samples[0].inputs[0].shape[0] == 1
    assert len(golden.samples) == 2
    assert max(int(s.inputs[0].max()) for s in golden.samples) > 9, "within the range"


def test_the_same_command_writes_the_same_bytes(folder: Path) -> None:
    arguments = (f"{author()}.py:make_model", "-o", "out.pt2", "-i", IDS, "-i", MASK)
    golden = []
    for seed in ("3", "3", "4"):
        found = inspection.inspect(str(exported(*arguments, "--seed", seed)))
        golden.append(json.dumps(found.samples))
    assert golden[0] == golden[1] != golden[2]


def test_samples_of_a_file_are_recorded(folder: Path) -> None:
    np.savez(folder / "one.npz", ids=np.full((2, 3), 7), mask=np.ones((2, 3), np.float32))
    path = exported(f"{author()}:ready", "-o", "out.pt2", "-i", IDS, "-i", MASK, "--sample", "one.npz")
    prepare(path, folder / "model")
    (sample,) = load_golden(folder / "model", None).samples
    assert sample.inputs[0].tolist() == [[7, 7, 7], [7, 7, 7]]


def test_facts_are_recorded(folder: Path) -> None:
    (folder / "labels").write_text("negative\nneutral\npositive\nmixed\n")
    (folder / "tokenizer.json").write_text("{}")
    path = exported(
        f"{author()}:ready", "-o", "out.pt2", "-i", IDS, "-i", MASK, "--pad", "ids=0", "--pad", "mask=0.0",
        "--task", "text-classification", "--labels", "labels", "--tokenizer", "tokenizer.json", "--rtol", "1e-4",
        "--preprocessing", "lowercase=true", "--preprocessing", "size=224", "--preprocessing", "norm=a=b",
    )  # fmt: skip
    found = inspection.inspect(str(path))
    assert found.tokenizer is not None
    assert found.document["facts"] == {
        "padding": {"ids": 0, "mask": 0.0},
        "task": "text-classification",
        "labels": ["negative", "neutral", "positive", "mixed"],
        "preprocessing": {"lowercase": True, "size": 224, "norm": "a=b"},
        "tolerance": {"rtol": 1e-4},
        "device": "cpu",
    }


def test_every_wrong_source_is_told(folder: Path) -> None:
    given = ("-o", "out.pt2", "-i", IDS, "-i", MASK)
    name = author()
    for source, words in {
        "nothing": "'nothing' names no model: write MODULE:NAME or FILE.py:NAME",
        "missing.py:make": "there is no file missing.py",
        "missing_module:make": "missing_module cannot be imported: ModuleNotFoundError",
        f"{name}:nothing": f"{name} has no 'nothing'; it has Sentiment, make_model",
        f"{name}:text": "is a str; name a torch.nn.Module",
        f"{name}:broken": "broken() failed: RuntimeError: no weights here",
        f"{name}:number": "number() returned a int, and must return a torch.nn.Module",
        f"{name}:training": "is in training mode; call .eval()",
        "missing.pt2": "there is no file missing.pt2",
    }.items():
        assert words in refused(source, *given), source


def test_every_wrong_input_is_told(folder: Path) -> None:
    source = f"{author()}:ready"
    assert "say what forward takes, one --input for each argument: --input 'ids=TYPE[batch:1..64,…]' --input 'mask" in (
        refused(source, "-o", "out.pt2")
    )
    for arguments, words in (
        (("-i", "ids"), "write NAME=TYPE[AXIS,…], as in ids=int64[batch:1..64,sequence:1..256]"),
        (("-i", "ids=int[2]"), "int is no element type; the types are bool, uint8"),
        (("-i", "ids=int64[Batch]"), "'Batch' is no axis"),
        (("-i", "ids=int64[batch:1..64]", "-i", "mask=int64[batch:1..8]"), "one name has one range"),
        (("-i", IDS, "-i", IDS), "ids is described twice"),
        (("-i", IDS), "missing a required argument: 'mask'; its signature is forward(ids, mask)"),
        (("-i", IDS, "-i", MASK, "--range", "ids=5..1"), "write NAME=LOW..HIGH"),
        (("-i", IDS, "-i", MASK, "--range", "id=0..1"), "there is no input 'id'; the inputs are ids, mask"),
        (("-i", IDS, "-i", MASK, "--range", "ids=0..99999"), "the model fails on inputs of shape ids"),
        (("-i", IDS, "-i", "mask=float32[batch,9]"), "the model fails on inputs of shape"),
        (("-i", "ids=int64[batch:1..1,sequence]", "-i", MASK), "has a maximum of 2 or more"),
    ):
        assert words in refused(source, "-o", "out.pt2", *arguments), arguments


def test_every_wrong_sample_file_is_told(folder: Path) -> None:
    (folder / "no.npz").write_text("no")
    np.savez(folder / "names.npz", ids=np.ones((2, 3), np.int64))
    np.savez(folder / "types.npz", ids=np.ones((2, 3), np.int32), mask=np.ones((2, 3), np.float32))
    np.savez(folder / "axes.npz", ids=np.ones(3, np.int64), mask=np.ones((2, 3), np.float32))
    np.savez(folder / "objects.npz", ids=np.array([{}]), mask=np.ones((2, 3), np.float32))
    for file, words in {
        "no.npz": "is no readable .npz file",
        "missing.npz": "is no readable .npz file",
        "names.npz": "has the arrays ['ids']; the inputs are ids, mask",
        "types.npz": "ids is int32, and the input is int64",
        "axes.npz": "ids has 1 axes, and the input has 2",
        "objects.npz": "is no readable .npz file of plain arrays",
    }.items():
        text = refused(f"{author()}:ready", "-o", "out.pt2", "-i", IDS, "-i", MASK, "--sample", file)
        assert words in text, file


def test_wrong_usage_is_exit_code_2(folder: Path) -> None:
    assert export(f"{author()}:ready").exit_code == 2
    assert export(f"{author()}:ready", "-o", "out.pt2", "--pad", "ids").exit_code == 2
    assert export(f"{author()}:ready", "-o", "out.pt2", "--pad", "ids=many").exit_code == 2


def test_help_teaches_with_examples_that_are_understood() -> None:
    text = " ".join(export("--help").output.split())
    assert "ids=int64[batch:1..64,sequence:1..256]" in text
    (spec,) = specs.parse_inputs(["ids=int64[batch:1..64,sequence:8..256/8]"])
    assert spec.axes == (Size("batch", 1, 64), Size("sequence", 8, 256, step=8))


@pytest.mark.parametrize(
    "command", sorted({each.name or str(each.callback.__name__) for each in app.registered_commands})
)
def test_help_is_not_cut_on_a_narrow_terminal(command: str) -> None:
    text = CliRunner(env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"}).invoke(app, [command, "--help"]).output
    assert len(text) > 500
    assert [line for line in text.splitlines() if re.search(r"[\w=:.]…", line)] == []


def test_who_ends_it_while_it_is_imported_sees_no_traceback() -> None:
    program = (
        "import sys\n"
        "class Interrupted:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'headway_runtime.cli.bench':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupted())\n"
        "import headway_runtime.cli"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_an_axis_in_steps_is_exported_and_sampled(folder: Path) -> None:
    (folder / "eights.py").write_text(
        "import torch\nclass Eights(torch.nn.Module):\n    def forward(self, x):\n"
        "        return x.view(x.shape[0], -1, 8).sum(1)\n\nmodel = Eights().eval()\n"
    )
    result = export("eights.py:model", "-o", "out.pt2", "-i", "x=float32[batch:1..8,width:8..64/8]", "--samples", "3")
    assert "note: width:8..64/8 was declared, and the program takes 16 to 64 in steps of 8" in result.output
    prepare(folder / "out.pt2", folder / "model")
    widths = [s.inputs[0].shape[1] for s in load_golden(folder / "model", None).samples]
    assert 1 <= len(widths) < 3, "the least one does not fit"
    assert all(width in range(16, 65, 8) for width in widths)


def test_a_file_that_exists_gets_names_and_golden_answers_to_its_own_examples(tmp_path: Path) -> None:
    source = plain_export(Encoder, tmp_path / "plain.pt2")
    names = ("-i", "ids=int64[rows,sequence]", "--output", "sentence", "--output", "words", "--task", "embedding")
    path = exported(str(source), "-o", str(tmp_path / "named.pt2"), *names)
    program = load_program(prepare(path, tmp_path / "model"), dimension_names={})
    assert (list(program.dimensions), program.batch) == (["rows", "sequence"], "rows")
    assert [o.name for o in program.outputs] == ["sentence", "words"]
    (sample,) = load_golden(tmp_path / "model", None).samples
    assert [list(t.shape) for t in (*sample.inputs, *sample.outputs)] == [[2, 5], [2, 5], [2, 8], [2, 5, 8]]
    expected = Encoder().eval()(*sample.inputs)["pooled"]
    assert torch.allclose(sample.outputs[0], expected, atol=1e-6)


def test_torch_reads_what_was_rewritten_as_it_read_the_original(tmp_path: Path) -> None:
    source = plain_export(Encoder, tmp_path / "plain.pt2")
    path = exported(str(source), "-o", str(tmp_path / "named.pt2"), "--samples", "2", "--range", "ids=0..49")
    ids, mask = torch.randint(0, 49, (3, 7)), torch.ones(3, 7, dtype=torch.int64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before, after = (torch.export.load(file).module()(ids, mask) for file in (source, path))
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_record_is_added_to_field_by_field_in_place(tmp_path: Path) -> None:
    path = str(plain_export(Encoder, tmp_path / "m.pt2"))
    exported(path, "-o", path, "-i", "ids=int64[batch,sequence]", "--samples", "2")
    first = inspection.inspect(path)
    (tmp_path / "labels").write_text("\n".join("abcdefgh"))
    exported(path, "-o", path, "--labels", str(tmp_path / "labels"), "--atol", "0.5")
    second = inspection.inspect(path)
    assert second.document["dimensions"] == first.document["dimensions"]
    assert second.samples == first.samples
    assert second.document["facts"] == {"labels": list("abcdefgh"), "tolerance": {"atol": 0.5}}


def test_an_input_without_rows_gets_samples_too(tmp_path: Path) -> None:
    source = plain_export(Scaled, tmp_path / "m.pt2")
    path = exported(str(source), "-o", str(tmp_path / "out.pt2"), "--samples", "3", "--range", "x=1..2")
    prepare(path, tmp_path / "model")
    assert {tuple(s.inputs[1].shape) for s in load_golden(tmp_path / "model", None).samples} == {(3,)}


def test_a_program_that_is_not_batched_is_said_to_be(tmp_path: Path) -> None:
    source = plain_export(Summed, tmp_path / "m.pt2")
    result = export(str(source), "-o", str(tmp_path / "out.pt2"))
    assert "note: pods run one request at a time" in result.output


def test_what_does_not_fit_a_file_that_exists_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plain_export(Encoder, tmp_path / "m.pt2")
    (tmp_path / "no.pt2").write_text("no program")
    for arguments, words in (
        (("m.pt2", "-i", "words=int64[a,b]"), "the program has no input 'words'; it has ids, mask"),
        (("m.pt2", "-i", "ids=int32[a,b]"), "input ids of the program is int64[batch, ids.1]"),
        (("m.pt2", "-i", "ids=int64[a]"), "input ids of the program is int64[batch, ids.1]"),
        (("m.pt2", "-i", "ids=int64[a,5]"), "axis 1 differs"),
        (("m.pt2", "-i", "ids=int64[a:1..8,b]"), "an exported program has its ranges already; write a alone"),
        (("m.pt2", "-i", "ids=int64[a,a]"), "does not fit the program: dimension 'a' names a fixed size, or two sizes"),
        (("m.pt2", "--output", "one"), "1 output names for 2 outputs"),
        (("m.pt2", "--samples", "1", "--range", "ids=60..70"), "the program fails on a sample: "),
        (("m.pt2", "--program", "other"), "the artifact holds model, and no program 'other'"),
        (("no.pt2",), "a pod would refuse this program (NotAnArchive)"),
    ):
        assert words in refused(*arguments, "-o", "out.pt2"), arguments
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.pt2", "no.pt2"]


def test_each_program_of_an_archive_has_a_record_of_its_own(tmp_path: Path) -> None:
    rows = {"x": {0: Dim("rows", min=1, max=8)}}
    both = {
        name: torch.export.export(module, (torch.rand(3, 4),), dynamic_shapes=rows)
        for name, module in (("score", Doubled().eval()), ("encode", Doubled().eval()))
    }
    path = str(tmp_path / "both.pt2")
    package_pt2(path, exported_programs=both)
    assert "the artifact holds encode, score; name one of them" in refused(path, "-o", str(tmp_path / "out.pt2"))
    exported(path, "-o", path, "--program", "score", "--output", "doubled", "--samples", "2")
    exported(path, "-o", path, "--program", "encode", "--task", "embedding")
    found = inspection.inspect(path).programs
    assert {n: (p.document["outputs"][0]["name"], len(p.samples)) for n, p in found.items()} == {
        "score": ("doubled", 2),
        "encode": ("output_0", 1),
    }
    assert found["encode"].document["facts"] == {"task": "embedding"}


class Doubled(torch.nn.Module):
    """x [rows, 4] -> 2x."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * x


def test_a_link_is_followed_on_ones_own_machine(tmp_path: Path) -> None:
    plain_export(Summed, tmp_path / "real.pt2")
    (tmp_path / "link.pt2").symlink_to("real.pt2")
    exported(str(tmp_path / "link.pt2"), "-o", str(tmp_path / "out.pt2"))
    assert CliRunner().invoke(app, ["inspect", str(tmp_path / "link.pt2")]).exit_code == 0


def test_sizes_for_tracing_differ_and_are_never_one() -> None:
    sizes = {s.name: s for s in (Size("a", 1, 64), Size("b", 1), Size("c", 2, 2), Size("d", 100, 900, step=50))}
    chosen = specs.tracing_sizes(sizes)
    assert len(set(chosen.values())) == 4
    assert all(sizes[name].holds(n) and n >= 2 for name, n in chosen.items())


def test_large_inputs_are_sampled_small() -> None:
    described = specs.parse_inputs(["image=float32[batch:1..64,3,224,224]"])
    samples = specs.samples(described, 4, {}, torch.Generator().manual_seed(0))
    assert sum(s["image"].numel() * 4 for s in samples) <= 4 << 20
    assert specs.samples(described, 0, {}, torch.Generator()) == []


def test_values_are_of_their_type_and_within_their_range() -> None:
    texts = [
        f"{name}={dtype}[n:100..100000]"
        for name, dtype in zip("abcdef", ("int8", "bool", "float16", "bfloat16", "uint64", "float64"), strict=True)
    ]
    described = specs.parse_inputs(texts)
    ranges = specs.parse_ranges(["a=-3..3", "d=-1..-0.5", "f=1e3..2e3"], list("abcdef"))
    made = specs.make(described, {"n": 500}, ranges, torch.Generator().manual_seed(0))
    assert {str(t.dtype) for t in made.values()} == {f"torch.{s.dtype}" for s in described}
    assert (int(made["a"].min()), int(made["a"].max())) == (-3, 3)
    assert -1 <= made["d"].min() <= made["d"].max() <= -0.5
    assert 1000 <= made["f"].min() <= made["f"].max() <= 2000
    with pytest.raises(ExportError, match="LOW"):
        specs.parse_ranges(["a=x..y"], ["a"])


def test_one_is_not_several() -> None:
    assert [counted(number, "run") for number in (0, 1, 2)] == ["0 runs", "1 run", "2 runs"]
