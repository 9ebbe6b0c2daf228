"""All steps in order, and what stands in the directory when they are done: fetch → digest → signature →
(unpack native code →) inspect → repack → marker.
"""

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from headway_runtime.native import unpack as native
from headway_runtime.prepare import log, programs, repack
from headway_runtime.prepare.errors import FetchError, SignatureError
from headway_runtime.prepare.fetch import MAX_BYTES, fetch
from headway_runtime.prepare.isolate import inspect_isolated
from headway_runtime.prepare.signatures.step import KEPT, check_again, check_plain, check_signature
from headway_runtime.prepare.signatures.trust import Trust

ANYONE = Trust()
_WORK = ".fetch-"


def prepare(
    uri: str,
    output: Path,
    *,
    pinned: str | None,
    credentials: Path,
    program: str | None = None,
    trust: Trust = ANYONE,
    max_bytes: int = MAX_BYTES,
) -> dict[str, Any]:
    """Prepare the artifact at ``uri`` in ``output`` and return the marker: digest, bytes, torch, signer.

    ``pinned`` is ``sha256:<hex>`` or None; ``program`` is the one of several that is to be served; ``trust`` says whose
    artifacts are. A directory that already holds the pinned artifact (or, without a pin, this URI's), signed by a key
    that is still trusted, is left as it is: a restarted container starts at once. Raises PrepareError.
    """
    if (ready := _ready(output, uri, pinned, program, trust)) is not None:
        log.event("prepare.reused", digest=ready["digest"])
        return ready
    output.mkdir(parents=True, exist_ok=True)
    _clear(output)
    work = Path(tempfile.mkdtemp(prefix=_WORK, dir=output))
    try:
        artifact = work / "artifact.pt2"
        fetched = fetch(uri, artifact, credentials=credentials, max_bytes=max_bytes)
        if pinned is not None and pinned != fetched.digest:
            message = (
                f"the artifact has digest {fetched.digest}, but {pinned} is pinned; pin the new one or restore the file"
            )
            raise FetchError("DigestMismatch", message, field="spec.artifact.digest")
        signed = check_signature(uri, fetched.digest, work, credentials=credentials, trust=trust)
        unpacked = native.unpack(artifact, work, signed)
        source = unpacked.source if unpacked else artifact
        inspection = inspect_isolated(source)
        chosen = programs.choose(inspection.programs, program)
        if unpacked:
            unpacked.check(inspection.programs)
        else:
            check_plain(signed, inspection.programs[chosen].torch)
        log.event(
            "inspect.done",
            program=chosen,
            programs=len(inspection.programs),
            torch=inspection.programs[chosen].torch,
            nodes=len(inspection.programs[chosen].document["nodes"]),
            weights=inspection.weights_bytes,
        )
        repack.repack(inspection, source, output)
        if unpacked:
            unpacked.place(output)
        if signed is not None:
            (work / KEPT).replace(output / KEPT)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    facts = {
        "uri": uri,
        "digest": fetched.digest,
        "bytes": fetched.size,
        "torch": inspection.programs[chosen].torch,
        "program": chosen,
        "weights": inspection.weights_bytes,
        "signer": signed and signed.keyid,
        "native": unpacked and unpacked.manifest.target,
    }
    repack.mark(output, facts)
    log.event("prepare.done", **facts)
    return facts


def _clear(output: Path) -> None:
    """Remove what an attempt before this one left, the marker first. One that was killed (for want of memory, say) has
    left up to twice the artifact's size, and there would be no room for this one.
    """
    (output / repack.MARKER).unlink(missing_ok=True)
    for name in (repack.WEIGHTS, f".{repack.WEIGHTS}", repack.TOKENIZER, KEPT):
        (output / name).unlink(missing_ok=True)
    native.remove(output)
    for folder in (output / repack.PROGRAMS, *output.glob(f"{_WORK}*")):
        shutil.rmtree(folder, ignore_errors=True)


def _ready(output: Path, uri: str, pinned: str | None, program: str | None, trust: Trust) -> dict[str, Any] | None:
    """The marker, when it and what it speaks of are there, are what is asked for, and are trusted today."""
    try:
        facts: dict[str, Any] = json.loads((output / repack.MARKER).read_bytes())
        complete = (output / repack.WEIGHTS).stat().st_size == facts["weights"]
        complete &= programs.choose(repack.program_names(output), program) == facts["program"]
        wanted = facts["digest"] == pinned if pinned else facts["uri"] == uri
        if not complete or not wanted:
            return None
        signed = check_again(output, facts["digest"], trust=trust)
        if facts["native"] and signed is None:  # nobody is trusted any more
            return None
    except SignatureError as e:
        log.event("prepare.untrusted", cause=str(e))
        return None
    except (OSError, ValueError, KeyError, TypeError, programs.UnknownProgramError):
        return None
    now = {**facts, "signer": signed and signed.keyid}
    if now != facts:  # another key vouches for it than did before
        repack.mark(output, now)
    return now
