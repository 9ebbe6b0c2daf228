"""Which memory a value may share, and what a program writes to: alias analysis over operator signatures.

A serving program must not remember: an accepted program that writes into a buffer would answer one user with
another's state. Every value has a set of roots, the inputs and weights whose memory it may share, or itself when it
is fresh. An operator that writes to an argument writes to all of that argument's roots.
"""

from dataclasses import dataclass, field

from headway_runtime.prepare.errors import Refusal
from headway_runtime.prepare.translate.operators import Signature

MAX_ROOTS = 4_000_000
"""In all sets together: a program made of views of everything would need memory and time for their square."""

Roots = frozenset[str]


@dataclass(slots=True)
class Aliases:
    """Roots by canonical value name, and the roots that were written to so far."""

    roots: dict[str, Roots] = field(default_factory=dict)
    written: set[str] = field(default_factory=set)
    total: int = 0

    def fresh(self, value: str) -> None:
        """The value has memory of its own."""
        self.roots[value] = frozenset({value})

    def shared(self, value: str, sources: list[str]) -> None:
        """The value may be, or may view, any of ``sources``."""
        roots = {self.roots.get(s, frozenset()) for s in sources}
        self.roots[value] = roots.pop() if len(roots) == 1 else frozenset().union(*roots)
        self.roots[value] = self.roots[value] or frozenset({value})
        self.total += len(self.roots[value]) if roots else 0  # a set that already was costs nothing
        if self.total > MAX_ROOTS:
            raise Refusal("graph.size", f"values that may share the memory of more than {MAX_ROOTS} others")

    def apply(self, signature: Signature, arguments: dict[str, list[str]], results: list[list[str]]) -> None:
        """Record one call. ``arguments``: value names by parameter; ``results``: value names by return position."""
        by_set: dict[str, list[str]] = {}
        for p in signature.parameters:
            values = arguments.get(p.name, [])
            if p.writes:
                for value in values:
                    self.written |= self.roots.get(value, frozenset())
            for letter in p.alias.split("|") if p.alias else ():
                by_set.setdefault(letter, []).extend(values)
        everything = [v for values in arguments.values() for v in values]
        for position, values in enumerate(results):
            alias = signature.returns[min(position, len(signature.returns) - 1)][1] if signature.returns else ""
            sources = [v for letter in alias.split("|") for v in by_set.get(letter, ())] if alias else []
            if signature.may_alias:
                sources = everything
            for value in values:
                if sources:
                    self.shared(value, sources)
                else:
                    self.fresh(value)


def writes(signature: Signature) -> bool:
    """Whether the operator writes to one of its arguments."""
    return any(p.writes for p in signature.parameters)
