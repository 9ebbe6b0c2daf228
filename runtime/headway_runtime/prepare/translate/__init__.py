"""A checked document into our own flat program: listed operators, canonical names, no word of the file.

Enters: the JSON of one program. Leaves: the document that ``headway_runtime.program`` loads. Read ``program`` first
(the whole translation), then ``graph`` (one node after the other), ``operators`` (the list, ``operators_2_15.txt``),
``arguments`` and ``preconditions`` (what they may be called with), ``writes`` (what a program writes to),
``higher_order`` (branches and loops), ``interface`` and ``trees`` (inputs and outputs), ``names`` and ``prune``.
"""
