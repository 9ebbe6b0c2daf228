"""The example inputs that ``torch.export.save`` adds: an archive of their own with a pickle inside.

Nothing of them is used yet, and the pickle is never executed. It is walked opcode by opcode all the same: a pickle
that does more than rebuild plain tensors was not written by an honest export, and what else such a file holds is not
worth finding out.
"""

import io
import pickletools
import re

from headway_runtime.prepare import archive as zip_
from headway_runtime.prepare.errors import Refusal

MAX_PICKLE = 1 << 20
MAX_OPCODES = 100_000

_ENTRIES = re.compile(
    r"(data\.pkl|version|byteorder|\.format_version|\.storage_alignment|\.data/(serialization_id|version)|"
    r"data/[0-9]{1,6})\Z",
    re.ASCII,
)
_OPCODE_NAMES = """
    PROTO GLOBAL BINPUT LONG_BINPUT BINGET LONG_BINGET MARK BINUNICODE TUPLE TUPLE1 TUPLE2 TUPLE3 EMPTY_TUPLE
    EMPTY_LIST EMPTY_DICT APPEND APPENDS SETITEM SETITEMS BINPERSID BININT BININT1 BININT2 LONG1 BINFLOAT NEWTRUE
    NEWFALSE NONE REDUCE STOP
"""
_OPCODES = frozenset(_OPCODE_NAMES.split())
_STORAGES = "Float Double Half BFloat16 Long Int Short Char Byte Bool ComplexFloat ComplexDouble Untyped"
_GLOBALS = {
    "torch._utils _rebuild_tensor_v2",
    "torch._utils _rebuild_parameter",
    "collections OrderedDict",
    "torch Size",
    "torch device",
    *(f"torch {kind}Storage" for kind in _STORAGES.split()),
}


def check(archive: zip_.Archive, name: str) -> None:
    """Raise Refusal ``sample.pickle`` (or ``archive.*``) unless the entry rebuilds plain tensors only, or is empty."""
    if archive.entries[name].size == 0:
        return
    try:
        inner = zip_.nested(archive, name)
        if any(not _ENTRIES.match(entry) for entry in inner.entries) or "data.pkl" not in inner.entries:
            raise Refusal("sample.pickle", sorted(inner.entries)[:5])
        _walk(inner.read("data.pkl", MAX_PICKLE))
    except Refusal as r:
        raise r.within(name) from None


def _walk(pickle: bytes) -> None:
    count, end = 0, 0
    try:
        for opcode, argument, position in pickletools.genops(io.BytesIO(pickle)):
            count += 1
            end = position or 0
            if count > MAX_OPCODES or opcode.name not in _OPCODES:
                raise Refusal("sample.pickle", opcode.name)
            if opcode.name == "GLOBAL" and argument not in _GLOBALS:
                raise Refusal("sample.pickle", argument)
    except ValueError as e:
        raise Refusal("sample.pickle", e) from e
    if end != len(pickle) - 1:
        raise Refusal("sample.pickle", "bytes after the end")
