"""What went wrong while exporting, and what to write instead."""

import re

ADVICE = "docs/export.md, “When torch cannot export it”, has the usual causes"
_FIX = re.compile(r"^  (\w+) = (.+)$", re.MULTILINE)
_DERIVED = re.compile(r"(\d+)\*(\w+)\Z")
_BOUND = re.compile(r"(min|max)=(\d+)")
_PLACE = re.compile(r'File "([^"]+)", line (\d+), in (\w+)')
_SIZE = re.compile(r"L\['([^']+)'\]\.size\(\)\[(\d+)\]")


class ExportError(ValueError):
    """The module, the inputs or the file cannot be exported as asked; the message says what to do."""


def explain(error: Exception) -> ExportError:
    """An error of ``torch.export`` in words for the model's author."""
    text = str(error)
    if "Constraints violated" in text:
        return ExportError(_constraints(text))
    if "data-dependent" in text:
        first = _sentence(text)
        return ExportError(
            f"the model decides something in Python by the value of a tensor{_place(text)}, which an exported program "
            f"cannot do; use torch.where or torch.cond. torch says: {first}"
        )
    return ExportError(
        f"torch cannot export the model{_place(text)}: {type(error).__name__}: {_sentence(text)}; {ADVICE}"
    )


def _constraints(text: str) -> str:
    reasons = [
        _SIZE.sub(r"\1.shape[\2]", line.strip().removeprefix("- "))
        for line in text.splitlines()
        if line.startswith("  - ")
    ]
    fixes = dict(_FIX.findall(text.partition("Suggested fixes:")[2]))
    return "\n".join(
        [
            "the model does not hold for every size that was declared:",
            *(f"  - {_shorter(reason)}" for reason in reasons[:4]),
            *(f"  write {line}" for line in _rewritten(fixes)),
        ]
    )


def _shorter(reason: str) -> str:
    return reason.partition(" If you're using mark_dynamic")[0][:300]


def _rewritten(fixes: dict[str, str]) -> list[str]:
    """torch's suggestions in our own terms: ``Size`` of Python, and the axis of ``--input``."""
    lines: list[str] = []
    for name, value in fixes.items():
        derived = _DERIVED.match(value)
        if derived is not None:
            step = int(derived[1])
            bounds = {k: int(n) * step for k, n in _BOUND.findall(fixes.get(derived[2], ""))}
            low, high = bounds.get("min", step), bounds.get("max")
            python = f'Size("{name}", {max(low, step)}, {high}, step={step})'
            lines.append(f"{python}, or {name}:{max(low, step)}..{high or ''}/{step} in --input")
        elif value.isdigit():
            lines.append(f"{value} for {name}, which the model fixes (or an example in which {name} is 2 or more)")
        elif value in fixes or re.fullmatch(r"[a-z]\w*", value):
            lines.append(f"one name for {name} and {value}: they are always equal")
        elif value.startswith("Dim(") and not name.startswith("_"):
            bounds = {k: int(n) for k, n in _BOUND.findall(value)}
            text = ", ".join(f"{key}={n}" for key, n in bounds.items())
            spec = f"{name}:{bounds.get('min', 1)}..{bounds.get('max', '')}"
            lines.append(f'Size("{name}", {text}), or {spec} in --input')
    return lines


def _place(text: str) -> str:
    """Where in the author's file, as far as torch says."""
    found = [m for m in _PLACE.finditer(text) if "/torch/" not in m[1]]
    return f" ({found[-1][1]}, line {found[-1][2]}, in {found[-1][3]})" if found else ""


def _sentence(text: str) -> str:
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    return (lines or ["no message"])[0][:400]
