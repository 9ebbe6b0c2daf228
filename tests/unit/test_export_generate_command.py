"""`headway export --task generate` as a user types it: every source, what is in the file, and every refusal."""

import json
import os
import re
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from click.testing import Result
from headway_api.types import Precision
from headway_runtime.cli import app
from headway_runtime.program.decoder import Decoder, open_decoder
from typer.testing import CliRunner

from tests.decoders import tiny_model, tiny_tokenizer
from tests.decoders.random import CONTEXT, SIZES
from tests.unit.decoder_steps import greedy, prepared

CODE = """
from tests.decoders import tiny_model, tiny_tokenizer

def decoder():
    return tiny_model("qwen3"), tiny_tokenizer()

def model_alone():
    return tiny_model("qwen3")
"""
PLAIN = {name: value for name, value in SIZES.items() if name != "head_dim"}


@pytest.fixture(scope="module", autouse=True)
def _quietly_offline() -> None:
    torch.set_num_threads(1)
    os.environ["HF_HUB_OFFLINE"] = "1"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of Hugging Face, as `save_pretrained` writes it."""
    return save(tmp_path_factory.mktemp("saved") / "llama", tiny_model("llama"))


@pytest.fixture
def folder(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it that may be spoilt, in the current directory."""
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copytree(saved, tmp_path / "llama"))


def save(path: Path, model: Any, tokenizer: Any = None) -> Path:
    model.save_pretrained(path)
    (tokenizer or tiny_tokenizer()).save_pretrained(path)
    return path


def export(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["export", "--task", "generate", *map(str, arguments)])


def exported(*arguments: str | Path) -> tuple[Path, dict[str, Any]]:
    """The file and its records by name."""
    result = export(*arguments, "-o", "out.pt2")
    assert result.exit_code == 0, result.output
    with zipfile.ZipFile("out.pt2") as archive:
        names = {name.partition("/extra/")[2]: name for name in archive.namelist() if "/extra/" in name}
        return Path("out.pt2"), {short: json.loads(archive.read(name)) for short, name in names.items()}


def refused(*arguments: str | Path) -> str:
    result = export(*arguments, "-o", "out.pt2")
    assert result.exit_code == 1, result.output
    assert not [path for path in Path().iterdir() if "out" in path.name or path.name.startswith(".headway")]
    return " ".join(result.output.split())


def opened(path: Path, name: str = "model") -> Decoder:
    folder = Path("prepared")
    if not folder.exists():
        prepared(path, folder)
    return open_decoder(folder, name, blocks=64, cache_dtype=torch.float32, precision=Precision.EXPORTED)


def edit(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def test_a_folder_becomes_a_file_that_says_all_that_a_pod_asks(folder: Path) -> None:
    generation = {"eos_token_id": [1, 2], "temperature": 0.6, "top_p": 0.9, "top_k": 20, "max_length": 99}
    edit(folder / "generation_config.json", lambda document: document.update(generation))
    path, records = exported(folder)
    record = records["headway.json"]
    assert record["task"] == "generate"
    assert record["outputs"] == ["logits"]
    said = record["generation"]
    assert said["context"] == CONTEXT
    assert said["end"] == [1, 2]
    assert (said["beginText"], said["endText"]) == ("<|begin|>", "<|end|>")
    assert said["chatTemplate"] == tiny_tokenizer().chat_template
    assert said["defaults"] == {"temperature": 0.6, "topP": 0.9, "topK": 20}
    assert len(said["golden"]) >= 8
    assert records["tokenizer.json"] == json.loads((folder / "tokenizer.json").read_text())
    decoder = opened(path)
    for golden in decoder.facts.golden[:3]:
        assert greedy(decoder, golden.prompt, len(golden.tokens)) == list(golden.tokens)


def test_each_phase_is_said_when_it_begins_with_the_seconds_so_far(folder: Path) -> None:
    draft = shutil.copytree(folder, "draft")
    result = export(folder, "--draft", draft, "-o", "out.pt2")
    assert result.exit_code == 0, result.output
    lines = [re.fullmatch(r" *(\d+\.\d) s  (.+)", line) for line in result.stderr.splitlines()]
    assert all(lines), result.stderr
    seconds, texts = zip(*[line.groups() for line in lines if line], strict=True)
    assert list(map(float, seconds)) == sorted(map(float, seconds))
    counts = [text for text in texts if "continuing" in text]
    number = len(counts) // 2
    assert counts[number - 1].endswith(f"continuing golden prompts by transformers: {number} of {number}")
    first = [text for text in texts if text not in counts or text.endswith(f": 1 of {number}")]
    wanted = ["importing", "reading", "reading", "tracing", "continuing", "the draft: tracing", "the draft: continuing"]
    wanted += ["saving", "inspecting", "running", "running"]
    assert [text.startswith(begin) for text, begin in zip(first, wanted, strict=True)] == [True] * len(wanted), first
    assert "tracing" not in result.stdout


def test_golden_tokens_are_what_transformers_says_and_no_sampling_of_the_folder_changes_them(folder: Path) -> None:
    edit(folder / "generation_config.json", lambda document: document.update(repetition_penalty=3.0, do_sample=True))
    _, records = exported(folder)
    model = tiny_model("llama")
    for golden in records["headway.json"]["generation"]["golden"]:
        ids = torch.tensor([golden["prompt"] + golden["tokens"]])
        with torch.no_grad():
            logits = model(ids).logits[0, len(golden["prompt"]) - 1 : -1]
        best = logits.topk(2)
        assert best.indices[:, 0].tolist() == golden["tokens"]
        assert (best.values[:, 0] - best.values[:, 1]).tolist() == pytest.approx(golden["margins"], abs=1e-3)


def test_a_function_of_the_author_gives_model_and_tokenizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", list(__import__("sys").path))
    Path("author_of_a_decoder.py").write_text(CODE)
    exported("author_of_a_decoder.py:decoder")
    Path("out.pt2").unlink()
    assert "must return (model, tokenizer)" in refused("author_of_a_decoder.py:model_alone")


def test_bfloat16_halves_the_file(folder: Path) -> None:
    wide, _ = exported(folder)
    size = weights_of(wide)
    narrow, records = exported(folder, "--dtype", "bfloat16")
    assert weights_of(narrow) == pytest.approx(size / 2, rel=0.01)
    assert records["headway.json"]["generation"]["golden"]


def weights_of(path: Path) -> int:
    with zipfile.ZipFile(path) as archive:
        return sum(item.file_size for item in archive.infolist() if "/data/weights/weight_" in item.filename)


def test_a_draft_is_a_second_program_with_a_record_of_its_own(folder: Path) -> None:
    config = transformers.LlamaConfig(**{**SIZES, "vocab_size": 370, "num_hidden_layers": 1})
    torch.manual_seed(4)
    draft = save(Path("draft"), transformers.LlamaForCausalLM(config).eval())
    path, records = exported(folder, "--draft", draft)
    assert records.keys() == {"headway.json", "headway.draft.json", "tokenizer.json"}
    main, second = (opened(path, name) for name in ("model", "draft"))
    assert (len(main.geometry.layers), len(second.geometry.layers)) == (2, 1)
    assert main.geometry.vocabulary == second.geometry.vocabulary == SIZES["vocab_size"]
    assert second.facts.golden != main.facts.golden
    for decoder in (main, second):
        golden = decoder.facts.golden[0]
        assert greedy(decoder, golden.prompt, len(golden.tokens)) == list(golden.tokens)


def test_a_draft_of_other_tokens_is_refused_by_name(folder: Path) -> None:
    draft = Path(shutil.copytree(folder, "draft"))
    edit(draft / "tokenizer.json", lambda document: document["model"]["vocab"].update(zzz=383))
    assert "the draft has other tokens" in (said := refused(folder, "--draft", draft))
    assert "'zzz' is number None and 383 there" in said


def no_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()


def no_config(folder: Path) -> None:
    (folder / "config.json").unlink()


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def broken_json(folder: Path) -> None:
    (folder / "config.json").write_text("{")


def a_weight_is_missing(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def of_another_model(folder: Path) -> None:
    edit(folder / "tokenizer.json", lambda document: document["model"]["vocab"].update(zzz=384))


def code_of_its_own(folder: Path) -> None:
    (folder / "modeling_evil.py").write_text("open('executed', 'w')")
    code = {"AutoConfig": "modeling_evil.Config", "AutoModelForCausalLM": "modeling_evil.Model"}
    edit(folder / "config.json", lambda document: document.update(model_type="evil", auto_map=code))


def turning_keys(folder: Path) -> None:
    rope = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
    edit(folder / "config.json", lambda document: document.update(rope_parameters=rope))


SPOILT: dict[Callable[[Path], None], str] = {
    no_tokenizer: "llama has no tokenizer.json; what is exported is a folder with config.json",
    no_config: "llama has no config.json",
    pickled: "llama has no weights in *.safetensors; pickled ones are not opened",
    broken_json: "transformers cannot read llama: OSError",
    a_weight_is_missing: "llama lacks weights of the model: model.layers.1.mlp.up_proj.weight",
    of_another_model: "the tokenizer has 385 tokens and the model 384: it is another model's",
    code_of_its_own: "transformers cannot read llama",
    turning_keys: "its rope type dynamic turns all keys anew when a sequence grows",
}


@pytest.mark.parametrize("spoil", SPOILT, ids=lambda spoil: spoil.__name__)
def test_a_folder_that_lacks_something_is_refused_in_a_sentence(folder: Path, spoil: Callable[[Path], None]) -> None:
    spoil(folder)
    assert SPOILT[spoil] in refused("llama")
    assert not Path("executed").exists()


OTHERS: dict[str, tuple[Callable[[], Any], str]] = {
    "experts": (lambda: transformers.MixtralConfig(**PLAIN), "it is a mixture of experts"),
    "alibi": (lambda: transformers.BloomConfig(**PLAIN), "it tells positions by ALiBi"),
    "encoder": (lambda: transformers.T5Config(), "it attends to the answer of an encoder"),
    "states": (lambda: transformers.MambaConfig(**PLAIN), "it has layers of the type linear_attention"),
    "pictures": (
        lambda: transformers.Gemma3Config(text_config=SIZES, vision_config={"hidden_size": 8}),
        "it has a vision_config, and the contract takes tokens of text only; export its text model alone",
    ),
    "both ways": (
        lambda: transformers.Gemma3TextConfig(**SIZES, use_bidirectional_attention=True),
        "its tokens see those that come after them",
    ),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_what_the_contract_cannot_say_is_refused_before_any_weight_is_read(folder: Path, kind: str) -> None:
    make, why = OTHERS[kind]
    make().save_pretrained(folder)
    assert why in refused("llama")


def test_a_model_whose_attention_is_its_own_is_refused(folder: Path) -> None:
    config = transformers.FalconConfig(**{**PLAIN, "alibi": False})
    save(folder, transformers.FalconForCausalLM(config).eval())
    assert "0 of the model's 2 layers attend through transformers' AttentionInterface" in refused("llama")


def test_what_is_nowhere_is_told_with_what_could_be_written(folder: Path) -> None:
    assert "there is no nowhere, and nothing is fetched; write a folder with config.json" in refused("nowhere")
    Path("chat.pt2").write_text("exported before")
    assert "chat.pt2 is not what a decoder is read from; write a folder with config.json" in refused("chat.pt2")
    assert "there is no file nowhere.gguf" in refused("nowhere.gguf")
    Path("text.gguf").write_text("no GGUF")
    assert "transformers cannot read text.gguf: ValueError: GGUF magic invalid" in refused("text.gguf")


@pytest.mark.parametrize("command", ["serve", "inspect", "bench"])
def test_what_is_still_to_be_exported_is_told_with_the_command_for_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    Path("text.gguf").write_text("GGUF")
    Path("empty").mkdir()
    for source, says in (
        ("text.gguf", "Export it first: headway export --task generate text.gguf -o text.pt2"),
        (folder.name, "Export it first: headway export --task generate llama -o llama.pt2"),
        ("empty", "empty is a folder, and no exported program, .pt2"),
        ("nowhere.pt2", "there is no file nowhere.pt2"),
    ):
        result = CliRunner().invoke(app, [command, source])
        assert result.exit_code == 2
        assert says in " ".join(result.output.replace("│", " ").split()), result.output


def test_export_without_the_task_says_the_whole_command(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    Path("text.gguf").write_text("GGUF")
    for source in (folder.name, "text.gguf"):
        result = CliRunner().invoke(app, ["export", source, "-o", "t.pt2"])
        assert result.exit_code == 2
        said = " ".join(result.output.replace("│", " ").split())
        assert f"Export it with its task: headway export --task generate {source} -o t.pt2" in said


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--task", "generate", "x", "--input", "a=int64[b]"], "goes with --out, --dtype and --draft alone"),
        (["--task", "generate", "x", "--tokenizer", "pyproject.toml"], "goes with --out, --dtype and --draft alone"),
        (["--task", "generate", "x", "--dtype", "int8"], "write float32 or bfloat16"),
        (["x.py:y", "--dtype", "bfloat16"], "goes with --task generate"),
        (["x.py:y", "--draft", "z"], "goes with --task generate"),
    ],
)
def test_options_that_do_not_go_together_are_refused(arguments: list[str], why: str) -> None:
    result = CliRunner().invoke(app, ["export", *arguments, "-o", "out.pt2"])
    assert result.exit_code == 2
    assert why in " ".join(result.output.replace("│", " ").split())
