"""Records beside the program: native code, pickles, old layouts, several programs, Headway's own."""

# ruff: noqa: E501  # a table: one sample a line

import io
import json
import re
import warnings
import zipfile
from pathlib import Path
from typing import Any

import torch

from tests.hostile import archives as ar
from tests.hostile.archives import MODEL, WEIGHTS, Entries
from tests.hostile.samples.registry import Build, add, replaced, sample


@sample("archive.record")
def native_code_with_compile_flags(out: Path, entries: Entries, marker: Path) -> Path:
    flags = json.dumps({"compiler": f"touch {marker};false"}).encode()
    return ar.write(out, {**entries, "data/aotinductor/model/x.wrapper_compile_flags.json": flags})


@sample("archive.record")
def a_pickled_custom_object(out: Path, entries: Entries, marker: Path) -> Path:
    return ar.write(out, {**entries, "data/constants/custom_obj_0": ar.pickled(marker)})


@sample("archive.record")
def weights_of_a_second_program(out: Path, entries: Entries, marker: Path) -> Path:
    return ar.write(out, {**entries, "data/weights/other_weights_config.json": b"{}"})


@sample("archive.missing")
def a_second_program_without_weights(out: Path, entries: Entries, marker: Path) -> Path:
    return ar.write(out, {**entries, "models/other.json": entries[MODEL]})


@sample("archive.programs")
def more_programs_than_are_read(out: Path, entries: Entries, marker: Path) -> Path:
    more = {
        re.sub(r"/model([_.])", rf"/m{i}\1", name): data for i in range(65) for name, data in own_of(entries).items()
    }
    return ar.write(out, {**entries, **more})


@sample("operator.unlisted")
def a_bad_program_beside_the_good_one(out: Path, entries: Entries, marker: Path) -> Path:
    def change(document: Any) -> None:
        document["graph_module"]["graph"]["nodes"][1]["target"] = "torch.ops.aten.from_file.default"

    second = ar.altered(own_of(entries), change)
    return ar.write(out, {**entries, **{second_name(name): data for name, data in second.items()}})


def own_of(entries: Entries) -> Entries:
    """The records that belong to the program alone: its graph, its two tables, its example inputs."""
    return {name: data for name, data in entries.items() if re.search(r"/model[_.]", name)}


def second_name(name: str) -> str:
    return re.sub(r"/model([_.])", r"/other\1", name)


@sample("archive.unused")
def a_weight_that_nothing_refers_to(out: Path, entries: Entries, marker: Path) -> Path:
    return ar.write(out, {**entries, "data/weights/weight_99": b"x" * 64})


@sample("archive.legacy")
def the_pickled_layout_of_old_versions(out: Path, entries: Entries, marker: Path) -> Path:
    return ar.write(
        out,
        {
            "version": b"8.20",
            "serialized_exported_program.json": entries[MODEL],
            "serialized_state_dict.pt": ar.pickled(marker),
        },
    )


@sample("archive.pickle")
def a_file_of_torch_save(out: Path, entries: Entries, marker: Path) -> Path:
    return ar.write(out, {"data.pkl": ar.pickled(marker), "byteorder": b"little", "data/0": b"", "version": b"3\n"})


@sample("archive.torchscript")
def a_torchscript_file(out: Path, entries: Entries, marker: Path) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit is deprecated, and its files are still about
        torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), out)
    return out


@sample("sample.pickle")
def example_inputs_that_run_code(out: Path, entries: Entries, marker: Path) -> Path:
    return ar.write(out, {**entries, "data/sample_inputs/model.pt": ar.pickled(marker)})


@sample("archive.not_zip")
def example_inputs_that_are_a_bare_pickle(out: Path, entries: Entries, marker: Path) -> Path:
    return ar.write(out, {**entries, "data/sample_inputs/model.pt": b"\x80\x02c__builtin__\neval\n." + b"." * 64})


@sample("weight.pickle")
def a_weight_flagged_as_pickle(out: Path, entries: Entries, marker: Path) -> Path:
    def flag(config: Any) -> None:
        next(iter(config["config"].values()))["use_pickle"] = True

    entries = ar.altered(entries, flag, WEIGHTS)
    first = next(iter(ar.document(entries, WEIGHTS)["config"].values()))["path_name"]
    return ar.write(out, {**entries, f"data/weights/{first}": ar.pickled(marker)})


def _record(text: bytes) -> Build:
    return lambda out, entries, marker: ar.write(out, {**entries, "extra/headway.json": text})


add("record.form", "a_record_with_an_unknown_field", _record(b'{"version": 1, "hook": "x"}'))
add("record.form", "a_record_of_an_unknown_version", _record(b'{"version": 2}'))
add(
    "record.form",
    "a_record_of_an_input_that_is_not_there",
    _record(b'{"version": 1, "dimensions": [{"input": "y", "axis": 0, "name": "batch"}]}'),
)
add(
    "record.steps",
    "a_record_of_labels_for_an_output_that_is_not_there",
    _record(b'{"version": 1, "labels": ["a", "b"], "steps": {"labels": {"output": "y"}}}'),
)
add("record.steps", "a_record_of_a_program_that_is_not_there", _record(b'{"version": 1, "steps": {"preprocess": "y"}}'))
add(
    "record.form",
    "a_record_with_a_sample_of_the_wrong_size",
    _record(
        b'{"version": 1, "samples": [{"inputs": [{"dtype": "int64", "shape": [1000], "data": "AAAA"}], "outputs": []}]}'
    ),
)


# Every kind of record that torch's loader looks for and a plain export has not.
for _number, (_record, _data) in enumerate(
    {
        "data/aotinductor/model/x.so": b"\x7fELF",
        "data/aotinductor/model/x.wrapper.cpp": b"int x;",
        "data/constants/opaque_obj_0": b"cos\nsystem\n(S'x'\ntR.",
        "data/weights/model.pt": b"cos\nsystem\n(S'x'\ntR.",
        "data/constants/model.pt": b"cos\nsystem\n(S'x'\ntR.",
        "data/weights/weight_0.pt": b"x",
        "data/sample_inputs/other.pt": b"x",
        "data/xl_model_weights/model_param_config": b"{}",
        "executorch/model.pte": b"x",
        "mtia/model": b"x",
        "models/model.json.pkl": b"x",
        "models/.json": b"{}",
        "extra/a/b": b"x",
        "extra_files/x": b"x",
        ".data/other": b"x",
        "code/__torch__.py": b"x",
        "data.pkl": b"x",
    }.items()
):
    replaced("archive.record", f"a_record_that_no_plain_program_has_{_number}", _record, _data)

replaced("archive.header", "another_format", "archive_format", b"pt3")
replaced("archive.header", "another_version", "archive_version", b"1")
replaced("archive.header", "the_other_byte_order", "byteorder", b"big")
replaced("archive.header", "another_version_of_the_container", ".data/version", b"99\n")
replaced("archive.record_size", "a_header_of_a_megabyte", "byteorder", b"little" + bytes(1 << 20))
replaced("archive.record_size", "a_record_of_names_that_is_too_large", "extra/headway.json", b" " * (17 << 20))
replaced("json.syntax", "a_tokenizer_that_is_no_json", "extra/tokenizer.json", b"import os")
replaced("json.size", "a_tokenizer_nested_too_deeply", "extra/tokenizer.json", b"[" * 1000 + b"]" * 1000)


@sample("archive.missing")
def a_program_without_its_table_of_constants(out: Path, entries: Entries, marker: Path) -> Path:
    return ar.write(out, {n: d for n, d in entries.items() if "constants_config" not in n})


@sample("archive.missing")
def an_archive_without_its_byte_order(out: Path, entries: Entries, marker: Path) -> Path:
    return ar.write(out, {n: d for n, d in entries.items() if n != "byteorder"})


# Example inputs: a pickle that does more than rebuild tensors, or lies about them.
def _examples(pickle: bytes, **more: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, data in {"data.pkl": pickle, "byteorder": b"little", **more}.items():
            archive.writestr(zipfile.ZipInfo(f"a/{name}"), data)
    return buffer.getvalue()


def _tensor(storage: bytes, rest: bytes) -> bytes:
    """A pickle of one tensor: ``storage`` are the fields of its persistent id, ``rest`` offset, shape and strides."""
    return (
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(("
        + storage
        + b"tQ"
        + rest
        + b"\x89ccollections\nOrderedDict\n)RtR."
    )


_STORAGE = b"U\x07storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x04"
PICKLES = {
    "that_calls_a_function": b"cos\nsystem\n(S'x'\ntR.",
    "that_calls_by_name_from_the_stack": b"\x80\x04\x8c\x02os\x94\x8c\x06system\x94\x93\x94.",
    "that_makes_an_instance": b"(S'x'\nios\nsystem\n.",
    "that_builds_with_state": b"\x80\x02ccollections\nOrderedDict\n)R}b.",
    "that_makes_a_new_object": b"\x80\x02ctorch._utils\n_rebuild_parameter\n)\x81.",
    "that_reads_an_extension": b"\x80\x02\x82\x01.",
    "that_rebuilds_from_another_function": b"\x80\x02ctorch.storage\n_load_from_bytes\n(U\x01xtR.",
    "with_bytes_after_the_end": b"\x80\x02N.cos\nsystem\n.",
    "without_an_end": b"\x80\x02]",
    "that_takes_from_an_empty_stack": b"\x80\x02tR.",
    "that_recalls_what_was_never_kept": b"\x80\x02h\x05.",
    "with_a_storage_of_another_class": _tensor(
        _STORAGE.replace(b"ctorch\nFloat", b"cos\nFloat"), b"K\x00K\x04\x85K\x01\x85"
    ),
    "with_a_storage_outside_of_the_archive": _tensor(
        _STORAGE.replace(b"\x01\x00\x00\x000", b"\x04\x00\x00\x00../x"), b"K\x00K\x04\x85K\x01\x85"
    ),
    "that_reaches_outside_of_its_storage": _tensor(_STORAGE, b"K\x00K\x63\x85K\x01\x85"),
    "of_a_negative_size": _tensor(_STORAGE, b"K\x00J\xff\xff\xff\xff\x85K\x01\x85"),
    "that_starts_behind_its_storage": _tensor(_STORAGE, b"J\xff\xff\xff\x7fK\x04\x85K\x01\x85"),
    "of_a_hundred_thousand_opcodes": b"\x80\x02" + b"N0" * 100_001 + b"N.",
    "of_an_integer_of_a_megabyte": b"\x80\x02\x8b" + (900_000).to_bytes(4, "little") + b"\x7f" * 900_000 + b".",
}
for _name, _pickle in PICKLES.items():
    replaced(
        "sample.pickle",
        f"an_example_{_name}",
        "data/sample_inputs/model.pt",
        _examples(_pickle, **{"data/0": bytes(16)}),
    )
replaced(
    "sample.pickle",
    "an_example_with_a_library",
    "data/sample_inputs/model.pt",
    _examples(b"\x80\x02N.", **{"code/x.py": b"x"}),
)
replaced(
    "archive.record_size",
    "an_example_whose_pickle_is_too_large",
    "data/sample_inputs/model.pt",
    _examples(b"\x80\x02N." + bytes(2 << 20)),
)

RECORDS = {
    "that_is_a_list": [],
    "with_a_bomb_of_a_shape": {"samples": [{"inputs": [{"dtype": "int64", "shape": [1 << 62] * 300_000, "data": ""}], "outputs": []}]},
    "with_a_negative_axis": {"dimensions": [{"input": "x", "axis": -1, "name": "batch"}]},
    "with_code_as_a_dimension": {"dimensions": [{"input": "x", "axis": 0, "name": "__import__('os')"}]},
    "with_padding_of_nothing": {"padding": {"ghost": 0}},
    "with_a_tolerance_of_everything": {"tolerance": {"rtol": 1e9}},
    "with_a_task_that_is_a_path": {"task": "../../etc"},
    "with_too_many_labels": {"labels": ["x"] * 100_001},
    "with_a_label_that_cannot_be_printed": {"labels": ["\u202eevil"]},
    "with_a_fact_that_is_an_object": {"preprocessing": {"mean": {"__class__": "x"}}},
    "with_an_output_too_many": {"outputs": ["a", "b"]},
    "with_a_sample_of_no_base64": {"samples": [{"inputs": [{"dtype": "bool", "shape": [1], "data": "!"}], "outputs": []}]},
    "with_a_boolean_of_two": {"samples": [{"inputs": [{"dtype": "bool", "shape": [1], "data": "Ag=="}], "outputs": []}]},
}  # fmt: skip
for _name, _content in RECORDS.items():
    _text = json.dumps({"version": 1, **_content} if isinstance(_content, dict) else _content).encode()
    replaced("record.form", f"a_record_{_name}", "extra/headway.json", _text)
replaced("archive.header", "an_identity_that_is_no_number", ".data/serialization_id", b"__import__(1)")
