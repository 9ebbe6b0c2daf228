"""The shape gate: every size of a program is derived again, before a weight is read or a number computed.

What enters is a prepared program and the sizes of a run; what leaves is what that run takes at least
(:class:`Need`), or a refusal. Read ``gate`` first (the comparison and the bound), then ``steps`` (the register machine,
built of operators that answer with sizes), ``ledger`` (bytes kept alive), ``control`` (branches and loops) and
``unknown`` (what the data decide). ``rules`` says where torch's shape functions do not serve; ``fast``, ``same``,
``windows`` and ``sizes`` answer for common operators without importing torch's compiler.
"""

from headway_runtime.program.shape_gate.gate import Need, ShapeGate, worth_measuring

__all__ = ["Need", "ShapeGate", "worth_measuring"]
