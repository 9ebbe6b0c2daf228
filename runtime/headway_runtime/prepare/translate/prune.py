"""Drop the instructions whose results nobody uses (a pooler that was exported but is not returned, unused sizes)."""

from headway_runtime.prepare.translate import operators, writes
from headway_runtime.prepare.translate.graph import Instruction, references, results


def prune(instructions: list[Instruction], outputs: list[str]) -> list[Instruction]:
    """The instructions that the outputs need, in order. Writes and assertions are always needed."""
    needed = set(outputs)
    kept: list[Instruction] = []
    for instruction in reversed(instructions):
        if _has_effect(instruction) or not needed.isdisjoint(results(instruction["out"])):
            needed.update(references([instruction["args"], list(instruction["kwargs"].values())]))
            kept.append(instruction)
    return kept[::-1]


def _has_effect(instruction: Instruction) -> bool:
    signature = operators.signature(instruction["op"])
    if signature is None:  # cond: a branch may assert something
        return "branches" in instruction
    return not signature.returns or writes.writes(signature)
