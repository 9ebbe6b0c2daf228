"""Sizes that are not numbers: symbols, what was assumed of them, and the names that people give them.

Enters: the text of symbolic sizes (``symbolic``) and of guards (``guards``). Leaves: values of our own, ``expression``,
which a small total function evaluates; nothing is ever passed to Python or sympy. ``dimensions`` is how a program's
sizes are named, for a pod and for ``headway inspect`` alike.
"""
