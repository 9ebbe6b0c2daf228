"""Fewer and larger operators in a decoder: at one token for each sequence, half of a step would go into calling small
ones.

What enters is the program's list of instructions, and what every value of it was in two small steps that really ran;
what leaves is a shorter list that computes the same. Shapes, types and views are not guessed from names: an instruction
is replaced when both steps show that it may be, and ``trial`` then holds the whole against what it came from.

Read ``graph`` (values, who makes and who reads them), ``views`` (what a chain of views does to its base), ``patterns``
(norm, gate, rotation), then ``fuse`` (the order of it all).
"""

from headway_runtime.program.fusion.fuse import Fused, fuse

__all__ = ["Fused", "fuse"]
