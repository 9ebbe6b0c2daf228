"""Signature files that were altered, and hostile artifacts that a trusted key signed.

Whatever is done to a signature file, `verify` refuses it or says what it said before; nothing else comes out, and it
ends soon. Three kinds: bytes of the file, values of its JSON, and values of the statement inside, signed again by the
trusted key (a signer may make mistakes). `HEADWAY_MUTATIONS` sets how many of each (default 400).
"""

import base64
import hashlib
import json
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from headway_runtime.prepare import run
from headway_runtime.prepare.errors import PrepareError, SignatureError
from headway_runtime.prepare.signatures import keys
from headway_runtime.prepare.signatures.trust import Trust
from headway_runtime.prepare.signatures.verify import Signed, sign_statement, signature_file, verify

from tests.hostile import archives as ar
from tests.hostile.mutations import mutate_bytes, mutate_value
from tests.hostile.samples import SAMPLES
from tests.unit.signing_keys import envelope, file, public, trusting

COUNT = int(os.environ.get("HEADWAY_MUTATIONS", "400"))
SECONDS_EACH = 1.0
TEAM, BUILDER = keys.generate(), keys.generate()
TRUST = trusting(TEAM, builders=(BUILDER,))
OPENSSF = Path(__file__).parents[1] / "unit/openssf"


def outcome(text: bytes, trust: Trust, digest: str) -> Signed | None:
    """What it says; None when it is refused, as it should be."""
    started = time.process_time()
    refusal = None
    try:
        found = verify(text, digest=digest, trust=trust)
    except SignatureError as error:
        refusal = error
    assert time.process_time() - started < SECONDS_EACH
    if refusal is None:
        return found
    said = str(refusal)
    assert refusal.reason == "SignatureInvalid"
    assert said.isprintable(), said
    assert len(said) < 2000, said
    return None


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[bytes, Trust, str]]:
    """Signature file, whom to trust, and the digest, of each form."""
    path = file(tmp_path_factory.mktemp("signed"))
    native = {"native": True, "target": "cpu", "source": f"sha256:{'ab' * 32}"}
    digest = f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"
    program = f"sha256:{hashlib.sha256((OPENSSF / 'program.bin').read_bytes()).hexdigest()}"
    owner = Trust(True, (keys.read_public_key(OPENSSF / "p521.pub"),))
    return {
        "plain": (sign_statement(path, TEAM, torch="2.15.0"), TRUST, digest),
        "native": (sign_statement(path, TEAM, BUILDER, torch="2.15.0", **native), TRUST, digest),
        "directory": ((OPENSSF / "directory-p521.sig").read_bytes(), owner, program),
    }


@pytest.mark.parametrize("form", ["plain", "native", "directory"])
@pytest.mark.parametrize("kind", [mutate_bytes, None], ids=["bytes", "values"])
def test_an_altered_signature_file_is_refused_or_says_the_same(
    honest: dict[str, tuple[bytes, Trust, str]], form: str, kind: Callable[..., bytes] | None
) -> None:
    text, trust, digest = honest[form]
    before = outcome(text, trust, digest)
    assert before is not None
    refused = 0
    for seed in range(COUNT):
        rng = random.Random(seed)
        if kind is not None:
            altered = kind(text, rng)
        else:
            document = json.loads(text)
            mutate_value(document, rng)
            altered = json.dumps(document).encode()
        found = outcome(altered, trust, digest)
        refused += found is None
        if found is not None and form == "native":  # one of two signatures may be gone
            assert found.statement == before.statement
        elif found is not None:
            assert found == before
    assert refused > COUNT // 2


@pytest.mark.parametrize("form", ["plain", "native"])
def test_an_odd_statement_of_a_trusted_key_is_refused_or_about_this_file(
    honest: dict[str, tuple[bytes, Trust, str]], form: str
) -> None:
    text, trust, digest = honest[form]
    payload = json.loads(base64.b64decode(json.loads(text)["payload"]))
    for seed in range(COUNT):
        rng = random.Random(seed)
        document = json.loads(json.dumps(payload))
        mutate_value(document, rng)
        found = outcome(envelope(json.dumps(document).encode("utf-8", "surrogatepass"), TEAM), trust, digest)
        if found is not None:
            assert found.statement.digest == digest
            assert not found.statement.native  # the key is no builder's


def test_as_many_signatures_and_keys_as_there_may_be_end_soon() -> None:
    others = [keys.generate() for _ in range(16)]
    trust = Trust(True, tuple(public(keys.generate()) for _ in range(64)), (public(BUILDER),))
    text = envelope(b"x" * 500_000, *others)
    started = time.process_time()
    with pytest.raises(SignatureError, match="no trusted key"):
        verify(text, digest=f"sha256:{'0' * 64}", trust=trust)
    assert time.process_time() - started < 20


@pytest.mark.parametrize("name", ["native_code_with_compile_flags", "a_program_changed_after_it_was_saved"])
def test_a_trusted_signature_excuses_nothing(name: str, tmp_path: Path, honest_entries: ar.Entries) -> None:
    rule, build = SAMPLES[name]
    path = build(tmp_path / "model.pt2", honest_entries, tmp_path / "marker")
    signature_file(path).write_bytes(sign_statement(path, TEAM, BUILDER, torch="2.15.0"))
    with pytest.raises(PrepareError, match=rule):
        run.prepare(path.as_uri(), tmp_path / "out", pinned=None, credentials=Path("/nonexistent"), trust=TRUST)
    assert not (tmp_path / "marker").exists()


@pytest.fixture
def honest_entries(exported: Callable[[str], Path]) -> ar.Entries:
    return ar.read(exported("mlp"))


def test_nothing_of_an_artifact_is_read_before_its_signer_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = file(tmp_path)
    signature_file(path).write_bytes(sign_statement(path, keys.generate(), torch="2.15.0"))

    def inspected(_: Any) -> Any:
        raise AssertionError("inspected")

    monkeypatch.setattr(run, "inspect_isolated", inspected)
    with pytest.raises(SignatureError, match="no trusted key"):
        run.prepare(path.as_uri(), tmp_path / "out", pinned=None, credentials=Path("/nonexistent"), trust=TRUST)
    assert list((tmp_path / "out").iterdir()) == []
