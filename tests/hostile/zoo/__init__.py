"""Honest programs, exported as their authors would.

`PROGRAMS` must be accepted, with the same bits as `torch.export.load(...).module()`; `REFUSED` must be refused, each
for its rule. Read `case` first; `basics` has one small program for each thing that models do, the other files have
families of real models with random weights and tiny sizes.
"""

from tests.hostile.zoo import audio, basics, control, quantised, recommend, recurrent, structure, text, vision
from tests.hostile.zoo.basics import COLLECTED, REFUSED
from tests.hostile.zoo.case import Case

__all__ = ["COLLECTED", "PROGRAMS", "REFUSED", "Case"]

PROGRAMS: dict[str, Case] = {}
for family in (basics, structure, control, recurrent, recommend, quantised, vision, audio, text):
    assert not PROGRAMS.keys() & family.PROGRAMS.keys()
    PROGRAMS |= family.PROGRAMS
