"""The init container: ``python -m headway_runtime.prepare``. Its last word is the termination message the operator
reads.
"""

import argparse
import os
import re
import signal
import sys
import threading
import traceback
from pathlib import Path

from headway_api.podconfig import PREPARED, ColdConfig, Termination
from pydantic import ValidationError

from headway_runtime.errors import FatalError
from headway_runtime.prepare import log
from headway_runtime.prepare.admission import admit
from headway_runtime.prepare.errors import PrepareError
from headway_runtime.prepare.room import host_room
from headway_runtime.prepare.run import prepare
from headway_runtime.prepare.signatures.trust import read_trust

MAX_MESSAGE = 4096
"""Bytes that Kubernetes keeps of a termination message."""

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}\Z")


def main(argv: list[str] | None = None) -> int:
    """Exit code 0 when the output directory is complete, 1 when the artifact was refused."""
    parser = argparse.ArgumentParser(prog="python -m headway_runtime.prepare", description=__doc__)
    parser.add_argument("--config", type=Path, required=True, help="the revision's cold configuration (JSON)")
    parser.add_argument("--digest-file", type=Path, help="file with the pinned digest; may be missing or empty")
    parser.add_argument(
        "--credentials", type=Path, default=Path("/nonexistent"), help="directory of a mounted Secret; may be missing"
    )
    parser.add_argument("--public-keys", type=Path, help="directory of a mounted Secret: keys of signers")
    parser.add_argument("--builder-keys", type=Path, help="directory of a mounted Secret: keys of builders")
    parser.add_argument("--output", type=Path, required=True, help="where the prepared program goes")
    parser.add_argument("--termination-log", type=Path, required=True, help="where the result is reported")
    options = parser.parse_args(argv)
    try:
        config = ColdConfig.model_validate_json(options.config.read_bytes())
        facts = prepare(
            config.artifact.uri,
            options.output,
            pinned=_pinned(options.digest_file),
            credentials=options.credentials,
            program=config.artifact.program,
            trust=read_trust(config.artifact.require, options.public_keys, options.builder_keys),
        )
        admit(config, options.output, facts["program"], weights=facts["weights"], room=host_room())
        found = {key: facts[key] for key in ("digest", "bytes", "torch", "signer")}
        result = Termination(reason=PREPARED, **found)
    except FatalError as e:
        result = e.termination()
    except PrepareError as e:
        result = Termination(condition=e.condition, reason=e.reason, message=str(e), field=e.field)
    except (OSError, ValidationError) as e:
        what = str(e)
        if isinstance(e, ValidationError):  # its own text repeats the input, which may be a URI with a password
            what = "; ".join(
                f"{'.'.join(map(str, found['loc'])) or options.config.name}: {found['msg']}"
                for found in e.errors(include_input=False, include_url=False, include_context=False)
            )
        text = f"the pod's own files or volume cannot be used: {type(e).__name__}: {what}"
        result = Termination(condition="ArtifactVerified", reason="PrepareFailed", message=text)
    except Exception as e:
        log.event("prepare.crashed", error=traceback.format_exc())
        result = Termination(
            condition="ArtifactVerified",
            reason="PrepareFailed",
            message=f"a defect of Headway: {type(e).__name__}: {e}",
        )
    _report(result, options.termination_log)
    return 0 if result.reason == PREPARED else 1


def _pinned(path: Path | None) -> str | None:
    try:
        text = path.read_text(encoding="ascii", errors="replace").strip() if path else ""
    except FileNotFoundError:
        return None
    if text and not _DIGEST.match(text):
        raise PrepareError(
            "InvalidSpec", f"{text[:80]!r} is no digest; write sha256:<64 hex digits>", field="spec.artifact.digest"
        )
    return text or None


def _report(result: Termination, path: Path) -> None:
    text = result.to_json()
    if len(text.encode()) > MAX_MESSAGE:
        room = MAX_MESSAGE - 512
        cut = result.message.encode("ascii", "backslashreplace")[: room // 2].decode("ascii")
        text = result.model_copy(update={"message": cut + "…"}).to_json()
    log.event("prepare.result", result=result.to_dict())
    path.write_text(text, encoding="utf-8")


def _end_on_sigterm() -> None:
    """End at once when told to. The first process of a container ignores SIGTERM unless it asks for it, and a handler
    would wait for the store's client to come back: so a thread waits for the signal.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # in this thread and all that it starts

    def wait() -> None:
        signal.sigwait({signal.SIGTERM})
        log.event("prepare.ended")
        os._exit(128 + signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()


if __name__ == "__main__":
    _end_on_sigterm()
    sys.exit(main())
