"""The reference pages of the record and of the report name every field, and none that does not exist."""

import json
import re
from pathlib import Path

from headway_runtime.prepare.beside import fields, generation, record, steps
from headway_runtime.prepare.report import describe
from headway_runtime.prepare.signatures.keys import generate, parse_public_key
from headway_runtime.prepare.signatures.trust import Trust
from headway_runtime.prepare.signatures.verify import sign_statement, signature_file

from tests import decoders
from tests.unit.small_models import Encoder, export

PAGES = Path(__file__).resolve().parents[2] / "docs/reference"


def named(text: str) -> set[str]:
    """The words in code in the first column of the tables."""
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    return {name for cell in rows for name in re.findall(r"`(\w+)`", cell)}


def examples(page: str) -> list[str]:
    """The JSON documents of a page, in order."""
    return re.findall(r"^```json\n(.*?)^```$", page, flags=re.DOTALL | re.MULTILINE)


def test_the_records_page_names_every_field_and_its_example_is_a_record() -> None:
    page, generates = (PAGES / "record.md").read_text().split("## Generation")
    assert named(generates) == {*generation._READERS}
    (example,) = examples(generates)
    assert generation.parse(json.loads(example)).golden
    whole, *parts = re.split(r"^### ", page, flags=re.MULTILINE)
    assert named(whole) == {*record._READERS, "version"}
    assert {part.split("`")[1]: named(part) for part in parts} == {
        "steps": {*steps._STEPS},
        "text": {*steps._TEXT},
        "image": {*steps._IMAGE},
        "labels": {*steps._LABELS},
    }
    example, *more = examples(page)
    for other in more:
        assert record.parse(json.dumps({"version": 1, "steps": json.loads(other)}).encode()).steps
    assert record.parse(example.encode()).facts().keys() < json.loads(example).keys()
    for number in (record.MAX_LABELS, fields.MAX_TEXT, fields.MAX_FACTS, record.MAX_BYTES >> 20):
        assert f"{number:,}" in page


def test_the_reports_page_names_every_key(tmp_path: Path) -> None:
    path = export(Encoder, tmp_path / "m.pt2")
    key = generate()
    signature_file(path).write_bytes(sign_statement(path, key, torch="2.15.0"))
    trust = Trust(True, (parse_public_key(key.public_pem(), "k.pub"),))
    report = json.loads(describe(path, trust).to_json())
    assert report["accepted"], report
    page = (PAGES / "inspect.md").read_text()
    whole, program = page.split("A program:")
    program, generates = program.split("A program that [generates text]")
    assert named(whole) == report.keys()
    text = json.loads(describe(decoders.tiny(tmp_path)).to_json())["programs"][0]["generation"]
    assert named(generates) == text.keys()
    assert named(program) == report["programs"][0].keys()
    for key_ in (*report["signature"], *report["programs"][0]["dimensions"]["batch"]):
        assert f"`{key_}`" in page
