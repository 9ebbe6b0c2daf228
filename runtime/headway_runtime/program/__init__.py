"""From a prepared directory to a program that runs.

What enters is what ``prepare`` wrote: checked JSON and raw weights. What leaves is a :class:`Program`: flat inputs
and outputs, named dimensions with ranges and guards, and ``run``. No ``ExportedProgram``, sympy or pytree, and no
code made from the file.

Read in this order: ``load`` (the class and how it is opened), ``interface`` and ``dimensions`` (names, ranges, guards;
pure), ``machine`` (how it runs), ``functions`` and ``guarded`` (names to torch operators), ``weights`` (the mapping);
then ``shape_gate``, which derives all shapes and the memory of a run before there is one. A program that generates text
is opened by ``decoder``, which binds its attention to a cache and its multiplications to packed weights (``packing``).
``headway_runtime.export`` is the other end: it writes a ``.pt2``.
"""

from headway_runtime.program.dimensions import Dimension, TensorSpec
from headway_runtime.program.errors import OutputError, ProgramError, ShapeError
from headway_runtime.program.load import Program, load_program

__all__ = ["Dimension", "OutputError", "Program", "ProgramError", "ShapeError", "TensorSpec", "load_program"]
