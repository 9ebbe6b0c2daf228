"""Tokens to text, as they come: never half a character, never what could be the beginning of a stop string.

Read `stream` first: it puts together `detokenizer` (which bytes a token is, whatever comes beside it), `joining` (bytes
to characters) and `stops` (where a stop string begins).
"""

from headway_runtime.generation.text.stream import TextStream

__all__ = ["TextStream"]
