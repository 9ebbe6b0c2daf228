"""What a file is, for people and for CI: ``headway inspect FILE``. Its JSON is described in docs/reference/inspect.md.

The names of dimensions, the ranges and the reasons are those that a pod uses: they come from the same functions.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway_runtime.native import unpack as native
from headway_runtime.prepare import programs, report_generation, report_text
from headway_runtime.prepare.errors import FetchError, PrepareError, Refusal
from headway_runtime.prepare.inspection import Inspected, Inspection
from headway_runtime.prepare.isolate import inspect_isolated
from headway_runtime.prepare.signatures import verify as signatures
from headway_runtime.prepare.signatures.trust import Trust
from headway_runtime.prepare.sizes import dimensions
from headway_runtime.prepare.sizes import expression as ex

UNASKED = Trust()


@dataclass(frozen=True, slots=True)
class InspectionReport:
    """``accepted`` or not; ``facts`` is the JSON document."""

    path: str
    accepted: bool
    facts: dict[str, Any]

    def to_json(self) -> str:
        """Indented JSON."""
        return json.dumps({"file": self.path, "accepted": self.accepted, **self.facts}, indent=2)

    def to_text(self) -> str:
        """A page to read."""
        return report_text.render(self.path, self.facts)


def describe(path: Path, trust: Trust = UNASKED) -> InspectionReport:
    """Inspect a file in a process of its own. Never raises for what is in the file.

    With keys in ``trust`` the signature beside the file must be by one of them, as in a pod that requires it.
    """
    facts: dict[str, Any] = {}
    refusals: list[dict[str, str]] = []
    real = path.resolve()  # here, unlike in a pod, a link is the user's own
    signed = None
    try:
        facts |= {
            "bytes": real.stat().st_size,
            "digest": signatures.file_digest(real),
            "signature": None,
            "native": None,
        }
        facts["signature"], signed = _signature(real, facts["digest"], trust)
    except PrepareError as e:
        refusals.append(_refusal(e))
    except OSError as e:
        refusals.append(_refusal(FetchError("NotFound", f"{path}: {e.strerror}")))
    try:
        if signed is not None and signed.statement.native:
            facts |= _native(real, signed)
        else:
            facts |= _facts(inspect_isolated(real))
    except PrepareError as e:
        refusals.append(_refusal(e))
    return InspectionReport(str(path), not refusals, {"refusals": refusals, **facts})


def _refusal(error: PrepareError) -> dict[str, str]:
    found = {"reason": error.reason, "message": str(error), "rule": "", "record": "", "path": ""}
    if isinstance(error, Refusal):
        found |= {"rule": error.rule, "record": error.record, "path": error.path}
    return found


def _signature(path: Path, digest: str, trust: Trust) -> tuple[dict[str, Any] | None, signatures.Signed | None]:
    """Who signed the file; None when nobody did and nobody was asked for. Raises SignatureError."""
    file = signatures.signature_file(path)
    if not trust.asks:
        return {"file": str(file), "verified": False} if file.exists() else None, None
    signed = signatures.verify(signatures.find_signature(file), digest=digest, trust=trust)
    said = {"file": str(file), "verified": True, "signer": signed.keyid, "key": signed.key, "builder": signed.builder}
    return said, signed


def _native(path: Path, signed: signatures.Signed) -> dict[str, Any]:
    """A package of native code that a builder vouches for: its source, and what its code needs."""
    manifest, inspection = native.examine(path, signed)
    needs = {"torch": manifest.torch, "target": manifest.target, "features": sorted(manifest.features)}
    return {"native": needs, **_facts(inspection)}


def _facts(inspection: Inspection) -> dict[str, Any]:
    default = programs.default(inspection.programs)
    return {
        "programs": [_program(name, found, name == default) for name, found in inspection.programs.items()],
        "weightsBytes": inspection.weights_bytes,
        "tokenizerBytes": inspection.tokenizer.size if inspection.tokenizer else None,
    }


def _program(name: str, found: Inspected, default: bool) -> dict[str, Any]:
    document = found.document
    named, (batch, reason) = dimensions.of_document(document)

    def tensor(item: dict[str, Any]) -> dict[str, Any]:
        shape = [named.render(size) for size in map(ex.from_json, item["shape"])]
        return {"name": item["name"], "dtype": item["dtype"], "shape": shape}

    generation = report_generation.facts(document)
    if generation is not None:
        batch, reason = None, report_generation.WHY_NO_BATCH
    golden = sum(bool(sample["outputs"]) for sample in found.samples)
    return {
        "name": name,
        "default": default,
        "torch": found.torch,
        "inputs": [tensor(i) for i in document["inputs"]],
        "outputs": [tensor(o) for o in document["outputs"]],
        "dimensions": {d.name: _dimension(named, d) for d in named.by_name.values()},
        "batch": batch,
        "notBatchable": reason,
        "guards": [named.render(ex.from_json(g)) for g in document["guards"]],
        "state": [w["name"] for w in document["weights"] if w["written"]],
        "operations": len(document["nodes"]),
        "operators": dict(sorted(found.operators.items(), key=lambda item: (-item[1], item[0]))),
        "weights": len(document["weights"]),
        "goldenSamples": golden,
        "exampleInputs": len(found.samples) - golden,
        "note": found.note or None,
        "facts": document.get("facts", {}),
        "steps": document.get("steps"),
        "generation": generation,
    }


def _dimension(named: dimensions.Named, dimension: dimensions.Dimension) -> dict[str, Any]:
    axis = named.axes[dimension.symbol]
    return {
        "min": dimension.min,
        "max": dimension.max,
        "step": axis.scale,
        "input": named.inputs[axis.input].name,
        "axis": axis.axis,
        "text": named.range(dimension.name),
    }
