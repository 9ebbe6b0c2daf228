"""What a program is, for people and for CI: ``headway inspect FILE``."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway_runtime.prepare import expression as ex
from headway_runtime.prepare.errors import Refusal
from headway_runtime.prepare.inspection import Inspection
from headway_runtime.prepare.isolate import inspect_isolated


@dataclass(frozen=True, slots=True)
class InspectionReport:
    """``accepted`` with ``facts`` about the program, or not, with the ``refusal``: reason, rule, record, JSON path,
    message.
    """

    path: str
    accepted: bool
    facts: dict[str, Any]
    refusal: dict[str, str] | None

    def to_json(self) -> str:
        """Indented JSON."""
        value = {
            "file": self.path,
            "accepted": self.accepted,
            **({"refusal": self.refusal} if self.refusal else self.facts),
        }
        return json.dumps(value, indent=2)

    def to_text(self) -> str:
        """A page to read."""
        if self.refusal is not None:
            where = [f"  {key}: {self.refusal[key]}" for key in ("rule", "record", "path") if self.refusal[key]]
            return "\n".join(
                [f"{self.path}: refused ({self.refusal['reason']})", f"  {self.refusal['message']}", *where]
            )
        facts = self.facts
        lines = [
            f"{self.path}: accepted",
            f"  torch {facts['torch']}, {facts['operations']} operations, {facts['weightsBytes']:,} bytes of weights",
        ]
        for side in ("inputs", "outputs"):
            lines.append(f"  {side}")
            lines += [f"    {t['name']}: {t['dtype']} [{', '.join(t['shape'])}]" for t in facts[side]]
        lines += (
            ["  dimensions", *(f"    {name}: {text}" for name, text in facts["dimensions"].items())]
            if facts["dimensions"]
            else []
        )
        lines += ["  holds only when", *(f"    {guard}" for guard in facts["guards"])] if facts["guards"] else []
        lines += ["  state: writes to " + ", ".join(facts["state"])] if facts["state"] else []
        operators = ", ".join(f"{name} x{count}" for name, count in facts["operators"].items())
        return "\n".join([*lines, f"  operators: {operators}"])


def describe(path: Path) -> InspectionReport:
    """Inspect a file in a process of its own. Never raises for what is in the file."""
    try:
        return InspectionReport(str(path), True, _facts(inspect_isolated(path)), None)
    except Refusal as r:
        refusal = {"reason": r.reason, "message": str(r), "rule": r.rule, "record": r.record, "path": r.path}
        return InspectionReport(str(path), False, {}, refusal)


def _facts(inspection: Inspection) -> dict[str, Any]:
    document = inspection.document
    names = _dimension_names(document)

    def tensor(item: dict[str, Any]) -> dict[str, Any]:
        return {
            "name": item["name"],
            "dtype": item["dtype"],
            "shape": [ex.render(ex.from_json(n), names) for n in item["shape"]],
        }

    return {
        "torch": inspection.torch,
        "inputs": [tensor(i) for i in document["inputs"]],
        "outputs": [tensor(o) for o in document["outputs"]],
        "dimensions": {
            names[s]: f"{r['min']} to {r['max'] if r['max'] is not None else 'any size'}"
            for s, r in sorted(document["symbols"].items())
            if s in names
        },
        "guards": [ex.render(ex.from_json(g), names) for g in document["guards"]],
        "operations": len(document["nodes"]),
        "operators": dict(sorted(inspection.operators.items(), key=lambda item: (-item[1], item[0]))),
        "weights": len(document["weights"]),
        "weightsBytes": inspection.weights_bytes,
        "state": [w["name"] for w in document["weights"] if w["written"]],
        "samples": len(inspection.samples),
    }


def _dimension_names(document: dict[str, Any]) -> dict[str, str]:
    """Names for symbols: recorded ones, else ``<input>.<axis>``."""
    recorded = {(name, axis): dimension for name, axis, dimension in document.get("dimensions", [])}
    names: dict[str, str] = {}
    for item in document["inputs"]:
        for axis, size in enumerate(item["shape"]):
            if isinstance(size, str):
                name = recorded.get((item["name"], axis))
                if name or size not in names:
                    names[size] = name or names.get(size, f"{item['name']}.{axis}")
    return names
