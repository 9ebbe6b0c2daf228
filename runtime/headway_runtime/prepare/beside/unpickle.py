"""A reader of the pickles that ``torch.save`` writes for plain tensors in tuples, lists and dicts.

It is no unpickler: nothing is imported, looked up or called. A global is a word on a list; what honest pickles call
(``_rebuild_tensor_v2``, …) is answered with our own description of a tensor, whose numbers are checked; anything else
is refused. ``pickletools.genops`` only splits the bytes into opcodes. Work and memory are linear in the bytes: values
are shared, never copied, and nobody walks them but along the paths that the program has.
"""

import io
import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headway_runtime.prepare.container import tensors
from headway_runtime.prepare.errors import Refusal

MAX_OPCODES = 100_000
MAX_ELEMENTS = 1 << 40

_UNTYPED = "torch.storage UntypedStorage"
_STORAGES = {
    "torch FloatStorage": "float32",
    "torch DoubleStorage": "float64",
    "torch HalfStorage": "float16",
    "torch BFloat16Storage": "bfloat16",
    "torch LongStorage": "int64",
    "torch IntStorage": "int32",
    "torch ShortStorage": "int16",
    "torch CharStorage": "int8",
    "torch ByteStorage": "uint8",
    "torch BoolStorage": "bool",
    "torch ComplexFloatStorage": "complex64",
    "torch ComplexDoubleStorage": "complex128",
    _UNTYPED: "",  # the tensor says its type
}
_DTYPES = {f"torch {name}": name for name in tensors.ITEM_BYTES}


@dataclass(frozen=True, slots=True)
class Storage:
    """Bytes in the entry ``data/<key>``: so many elements of one type. Without a type: so many bytes."""

    dtype: str
    key: str
    elements: int


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor whose every element lies in its storage. Sizes, strides and offset count elements."""

    storage: Storage
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    @property
    def dtype(self) -> str:
        return self.storage.dtype


@dataclass(frozen=True, slots=True)
class _Global:
    name: str  # "module name"


class _Mark:
    """The stack's marker."""


_MARK = _Mark()
_OPAQUE = object()  # something honest that we have no use for: a device


def load(pickle: bytes) -> Any:
    """What the pickle describes: Tensor, tuple, list, dict, str, number, bool and None. Raises Refusal
    ``sample.pickle``.
    """
    machine = _Machine()
    end = 0
    try:
        for count, (opcode, argument, position) in enumerate(pickletools.genops(io.BytesIO(pickle))):
            end = position or 0
            step = _STEPS.get(opcode.name)
            if step is None or count > MAX_OPCODES:
                raise Refusal("sample.pickle", opcode.name)
            step(machine, argument)
    except (ValueError, IndexError, KeyError, TypeError, OverflowError) as e:
        raise Refusal("sample.pickle", f"{type(e).__name__}: {e}") from e
    if end != len(pickle) - 1 or len(machine.stack) != 1:
        raise Refusal("sample.pickle", "bytes or values after the end")
    return machine.pop()


class _Machine:
    """The stack and the memo, and what each opcode does to them."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def pop(self) -> Any:
        value = self.stack.pop()
        if value is _MARK:
            raise Refusal("sample.pickle", "a mark where a value is needed")
        return value

    def to_mark(self) -> list[Any]:
        """The values above the last mark, which goes."""
        at = len(self.stack) - 1
        while self.stack[at] is not _MARK:
            at -= 1
            if at < 0:
                raise Refusal("sample.pickle", "no mark")
        values = self.stack[at + 1 :]
        del self.stack[at:]
        return values

    def put(self, index: int) -> None:
        self.memo[index] = self.pop()
        self.push(self.memo[index])

    def get(self, index: int) -> None:
        self.push(self.memo[index])

    def pack(self, count: int) -> None:
        self.push(tuple([self.pop() for _ in range(count)][::-1]))

    def extend(self, values: list[Any]) -> None:
        target = self.stack[-1]
        if type(target) is not list:
            raise Refusal("sample.pickle", "appends to what is no list")
        target.extend(values)

    def update(self, values: list[Any]) -> None:
        target = self.stack[-1]
        if type(target) is not dict or len(values) % 2:
            raise Refusal("sample.pickle", "sets items of what is no dict")
        for key, value in zip(values[::2], values[1::2], strict=True):
            if type(key) not in (str, int):
                raise Refusal("sample.pickle", "a key that is neither text nor a number")
            target[key] = value

    def persistent(self) -> None:
        """``('storage', torch.FloatStorage, '0', 'cpu', 12)``."""
        match self.pop():
            case ("storage", _Global(name=kind), str(key), str(), elements) if (
                kind in _STORAGES and type(elements) is int and 0 <= elements < MAX_ELEMENTS
            ):
                self.push(Storage(_STORAGES[kind], key, elements))
            case _:
                raise Refusal("sample.pickle", "a storage of another form")

    def named(self, name: str) -> None:
        if name not in _CALLS and name not in _STORAGES and name not in _DTYPES:
            raise Refusal("sample.pickle", name)
        self.push(_Global(name))

    def reduce(self) -> None:
        arguments, function = self.pop(), self.pop()
        if not isinstance(function, _Global) or type(arguments) is not tuple or function.name not in _CALLS:
            raise Refusal("sample.pickle", "calls something else than a constructor of tensors")
        self.push(_CALLS[function.name](arguments))


def _tensor(arguments: tuple[Any, ...]) -> Tensor:
    match arguments:
        case (Storage(dtype=str(dtype)) as storage, offset, tuple(shape), tuple(stride), bool(), hooks) if (
            dtype and hooks == {}
        ):
            return _inside(storage, offset, shape, stride)
    raise Refusal("sample.pickle", "a tensor of another form")


def _typed_tensor(arguments: tuple[Any, ...]) -> Tensor:
    """Of a type that has no storage of its own (uint16): the storage holds bytes, and the tensor says what they are."""
    match arguments:
        case (
            Storage(dtype="", elements=size) as storage,
            offset,
            tuple(shape),
            tuple(stride),
            bool(),
            hooks,
            named,
        ) if hooks == {} and isinstance(named, _Global) and named.name in _DTYPES:
            dtype = _DTYPES[named.name]
            elements, rest = divmod(size, tensors.ITEM_BYTES[dtype])
            if rest == 0:
                return _inside(Storage(dtype, storage.key, elements), offset, shape, stride)
    raise Refusal("sample.pickle", "a tensor of another form")


def _inside(storage: Storage, offset: Any, shape: tuple[Any, ...], stride: tuple[Any, ...]) -> Tensor:
    if any(type(n) is not int or not 0 <= n < MAX_ELEMENTS for n in (offset, *shape, *stride)):
        raise Refusal("sample.pickle", "sizes that are no plain numbers")
    if len(shape) != len(stride) or len(shape) > tensors.MAX_AXES:
        raise Refusal("sample.pickle", f"{len(shape)} sizes, {len(stride)} strides")
    if tensors.Stored(storage.dtype, shape, stride, offset).extent > storage.elements:
        raise Refusal("sample.pickle", "a tensor reaches outside of its storage")
    return Tensor(storage, shape, stride, offset)


def _parameter(arguments: tuple[Any, ...]) -> Tensor:
    match arguments:
        case (Tensor() as tensor, bool(), hooks) if hooks == {}:
            return tensor
    raise Refusal("sample.pickle", "a parameter of another form")


def _empty_dict(arguments: tuple[Any, ...]) -> dict[Any, Any]:
    if arguments:
        raise Refusal("sample.pickle", "a dict with arguments")
    return {}


def _size(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    match arguments:
        case (tuple(sizes),):
            return sizes
    raise Refusal("sample.pickle", "a size of another form")


_CALLS: dict[str, Callable[[tuple[Any, ...]], Any]] = {
    "torch._utils _rebuild_tensor_v2": _tensor,
    "torch._utils _rebuild_tensor_v3": _typed_tensor,
    "torch._utils _rebuild_parameter": _parameter,
    "collections OrderedDict": _empty_dict,
    "torch Size": _size,
    "torch device": lambda _: _OPAQUE,
}
_STEPS: dict[str, Callable[[_Machine, Any], None]] = {
    "PROTO": lambda m, _: None,
    "STOP": lambda m, _: None,
    "GLOBAL": lambda m, name: m.named(name),
    "BINPUT": lambda m, n: m.put(n),
    "LONG_BINPUT": lambda m, n: m.put(n),
    "BINGET": lambda m, n: m.get(n),
    "LONG_BINGET": lambda m, n: m.get(n),
    "MARK": lambda m, _: m.push(_MARK),
    "TUPLE": lambda m, _: m.push(tuple(m.to_mark())),
    "TUPLE1": lambda m, _: m.pack(1),
    "TUPLE2": lambda m, _: m.pack(2),
    "TUPLE3": lambda m, _: m.pack(3),
    "EMPTY_TUPLE": lambda m, _: m.push(()),
    "EMPTY_LIST": lambda m, _: m.push([]),
    "EMPTY_DICT": lambda m, _: m.push({}),
    "APPEND": lambda m, _: m.extend([m.pop()]),
    "APPENDS": lambda m, _: m.extend(m.to_mark()),
    "SETITEM": lambda m, _: m.update([m.pop(), m.pop()][::-1]),
    "SETITEMS": lambda m, _: m.update(m.to_mark()),
    "BINPERSID": lambda m, _: m.persistent(),
    "REDUCE": lambda m, _: m.reduce(),
    "NONE": lambda m, _: m.push(None),
    "NEWTRUE": lambda m, _: m.push(True),
    "NEWFALSE": lambda m, _: m.push(False),
    **dict.fromkeys(
        ("BINUNICODE", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"), lambda m, value: m.push(value)
    ),
}
