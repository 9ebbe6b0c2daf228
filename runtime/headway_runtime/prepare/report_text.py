"""The report of ``headway inspect`` as a page to read."""

from collections.abc import Iterator
from typing import Any

from headway_runtime.prepare import report_generation
from headway_runtime.prepare.beside import steps

MOST_LABELS = 5


def render(path: str, facts: dict[str, Any]) -> str:
    """The page. ``facts`` is the JSON document without ``file`` and ``accepted``."""
    refusals = facts["refusals"]
    reasons = ", ".join(refusal["reason"] for refusal in refusals)
    lines = [f"{path}: refused ({reasons})" if refusals else f"{path}: accepted"]
    lines += [f"  {refusal['message']}" for refusal in refusals]
    if any(refusal["rule"] for refusal in refusals):
        lines.append("  the inspection ends with the first rule that is broken; there may be others")
    lines += [f"  {line}" for line in _file(facts)]
    several = len(facts.get("programs", ())) > 1
    for program in facts.get("programs", ()):
        if several:
            lines.append(f"  program {program['name']}{' (when none is named)' if program['default'] else ''}")
        lines += [f"  {'  ' if several else ''}{line}" for line in _program(program)]
    return "\n".join(lines)


def _file(facts: dict[str, Any]) -> Iterator[str]:
    if "digest" in facts:
        yield f"{facts['bytes']:,} bytes, {facts['digest']}"
    signature = facts.get("signature")
    if signature is not None and signature["verified"]:
        builder = ", a builder" if signature["builder"] else ""
        yield f"signed by {signature['key']} ({signature['signer']}{builder})"
    elif signature is not None:
        yield f"a signature is at {signature['file']}; --key or --builder-key PUBLIC.pem says whether it is of that key"
    if native := facts.get("native"):
        needs = ", ".join(native["features"])
        yield f"native code for {native['target']} (needs {needs}), compiled with torch {native['torch']}"
    if "weightsBytes" in facts:
        yield f"{facts['weightsBytes']:,} bytes of weights"
    if facts.get("tokenizerBytes"):
        yield f"a tokenizer of {facts['tokenizerBytes']:,} bytes"


def _program(program: dict[str, Any]) -> Iterator[str]:
    yield f"exported by torch {program['torch']}, {program['operations']} operations"
    for side in ("inputs", "outputs"):
        yield side
        for tensor in program[side]:
            yield f"  {tensor['name']}: {tensor['dtype']} [{', '.join(tensor['shape'])}]"
    if program["dimensions"]:
        yield "dimensions"
        for name, dimension in program["dimensions"].items():
            yield f"  {name}: {dimension['text']}{', requests are joined along it' if name == program['batch'] else ''}"
    if program["generation"]:
        yield from report_generation.lines(program["generation"])
    elif program["notBatchable"]:
        yield f"one request at a time: {program['notBatchable']}"
    if program["guards"]:
        yield "holds only when"
        for guard in program["guards"]:
            yield f"  {guard}"
    if program["state"]:
        yield f"state: writes to {', '.join(program['state'])}"
    yield from _beside(program)
    yield f"operators: {', '.join(f'{name} x{count}' for name, count in program['operators'].items())}"


def _beside(program: dict[str, Any]) -> Iterator[str]:
    """What the record and the example inputs say."""
    facts = dict(program["facts"])
    if program["goldenSamples"]:
        tolerance = _pairs(facts.pop("tolerance", {}))
        yield f"golden samples: {program['goldenSamples']}{f', {tolerance}' if tolerance else ''}"
    if program["exampleInputs"]:
        yield f"example inputs: {program['exampleInputs']}"
    if program["note"]:
        yield f"example inputs are not used: {program['note']}"
    labels = facts.pop("labels", [])
    if labels:
        more = f", … {len(labels)} in all" if len(labels) > MOST_LABELS else ""
        yield f"labels: {', '.join(labels[:MOST_LABELS])}{more}"
    if program["steps"]:
        yield "steps"
        yield from (f"  {line}" for line in _steps(program["steps"]))
    for name, value in facts.items():
        yield f"{name}: {_pairs(value) if isinstance(value, dict) else value}"


def _steps(given: dict[str, Any]) -> Iterator[str]:
    """In the order in which they are taken."""
    found = steps.parse(given)
    if found.text:
        yield f"{found.text.input}: texts, tokenized to {', '.join(found.text.fills)}"
    if found.image:
        yield f"{found.image.input}: encoded images, decoded to {found.image.tensor}"
    if found.preprocess:
        yield f"before it runs program {found.preprocess}"
    if found.postprocess:
        yield f"after it runs program {found.postprocess}"
    if found.labels:
        labels = found.labels
        yield f"{labels.label}, {labels.score}: the best {labels.top} of {labels.output}"


def _pairs(values: dict[str, Any]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in values.items())
