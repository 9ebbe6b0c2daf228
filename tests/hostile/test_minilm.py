"""The real model: MiniLM passes inspection, loads, and embeds sentences with the same bits as torch's own loader."""

import importlib.util
import json
import time
import warnings
from pathlib import Path
from types import ModuleType

import pytest
import torch
from headway_runtime.prepare import isolate, repack
from headway_runtime.program import Program, load_program

SCRIPT = Path(__file__).parents[2] / "examples/minilm/export.py"
SHAPES = [(1, 1), (1, 2), (2, 1), (1, 17), (3, 17), (8, 64), (2, 256)]


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("minilm_export", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def artifact(example: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("minilm") / "v1.pt2"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        example.export(1, path)
    return path


@pytest.fixture(scope="module")
def prepared(artifact: Path) -> Path:
    target = artifact.parent / "prepared"
    target.mkdir()
    repack.repack(isolate.inspect_isolated(artifact), artifact, target)
    return target


@pytest.fixture(scope="module")
def program(prepared: Path) -> Program:
    return load_program(prepared, dimension_names={})


def test_minilm_passes_inspection(prepared: Path) -> None:
    document = json.loads(repack.program_file(prepared, "model").read_bytes())
    assert [(i["name"], i["dtype"], i["shape"]) for i in document["inputs"]] == [
        ("ids", "int64", ["s0", "s1"]),
        ("mask", "int64", ["s0", "s1"]),
    ]
    assert document["symbols"] == {"s0": {"max": 64, "min": 1}, "s1": {"max": 256, "min": 1}}


def test_its_dimensions_and_output_carry_the_author_s_names(program: Program) -> None:
    assert [(d.name, d.min, d.max) for d in program.dimensions.values()] == [("batch", 1, 64), ("sequence", 1, 256)]
    assert [(o.name, o.datatype, program.describe(o)) for o in program.outputs] == [
        ("embedding", "FP32", "[batch, 384]")
    ]
    assert (program.batch, program.not_batchable) == ("batch", None)


def test_its_embeddings_have_the_same_bits_as_torch_s_own_loader(
    program: Program, prepared: Path, artifact: Path
) -> None:
    """And all but the same with packed weights, which are multiplied by in another order."""
    mapped = load_program(prepared, dimension_names={}, pack=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        oracle = torch.export.load(artifact).module()
    for batch, sequence in SHAPES:
        generator = torch.Generator().manual_seed(batch * sequence)
        ids = torch.randint(1000, 30_000, (batch, sequence), generator=generator)
        mask = torch.ones_like(ids)
        mask[0, sequence // 2 + 1 :] = 0
        sizes = program.bind([(batch, sequence), (batch, sequence)])
        assert sizes == {"batch": batch, "sequence": sequence}
        assert program.check(sizes) is None
        (got,) = mapped.run([ids, mask])
        assert torch.equal(got, oracle(ids, mask))
        torch.testing.assert_close(program.run([ids, mask])[0], got, rtol=0, atol=2e-6)  # of 1, the length of a row
        assert got.shape == program.output_shapes(sizes)[0]


def test_its_golden_samples_are_of_several_lengths_and_reproduced(program: Program, prepared: Path) -> None:
    import base64

    samples = json.loads(repack.samples_file(prepared, "model").read_bytes())
    types = {"int64": torch.int64, "float32": torch.float32}

    def tensor(item: dict[str, object]) -> torch.Tensor:
        raw = bytearray(base64.b64decode(str(item["data"])))
        return torch.frombuffer(raw, dtype=types[str(item["dtype"])]).reshape(item["shape"])  # type: ignore[arg-type]

    for sample in samples:
        (got,) = program.run([tensor(t) for t in sample["inputs"]])
        torch.testing.assert_close(got, tensor(sample["outputs"][0]), rtol=1e-5, atol=1e-6)
    lengths = {sample["inputs"][0]["shape"][1] for sample in samples}
    assert len(lengths) >= 6
    assert max(lengths) <= 64, "what the example's buckets admit"


def test_its_second_version_differs_and_still_means_the_same(example: ModuleType, program: Program) -> None:
    ids = torch.tensor([[101, 7592, 2088, 102]])
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")
        second = example.encoder(2)(ids, torch.ones_like(ids))
    (first,) = program.run([ids, torch.ones_like(ids)])
    assert not torch.equal(first, second)
    assert float((first * second).sum()) > 0.99


def test_it_loads_in_a_moment(prepared: Path) -> None:
    started = time.process_time()
    load_program(prepared, dimension_names={})
    assert time.process_time() - started < 0.5
