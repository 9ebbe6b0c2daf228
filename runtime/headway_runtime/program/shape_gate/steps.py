"""The register machine of a program, built of operators that answer with sizes instead of numbers.

Every operator runs torch's own shape function, on tensors without memory (device ``meta``). What the data decide is
``UNKNOWN``, and so is all that comes of it.
"""

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from headway_runtime.prepare.translate import operators
from headway_runtime.program import functions
from headway_runtime.program.guarded import GUARDED
from headway_runtime.program.machine import Builder, Machine
from headway_runtime.program.shape_gate.control import MEASURED
from headway_runtime.program.shape_gate.fast import FAST, pointwise
from headway_runtime.program.shape_gate.ledger import Ledger
from headway_runtime.program.shape_gate.rules import DATA, META, OTHERWISE, PIECES, RULES, STRICTER
from headway_runtime.program.shape_gate.unknown import any_unknown, unknown_like
from headway_runtime.program.shape_gate.windows import WINDOWS

MAX_SECONDS = 60.0
"""CPU time of one gate; an honest program of 2,000 nodes needs less than one."""


_UNCOUNTABLE = re.compile("(calculation|multiplication) overflow|unpacking long|more than 64 bits", re.IGNORECASE)
_SAYS_NOTHING = re.compile("meta tensor|stride", re.IGNORECASE)
"""What a shape function complains about that is no matter of sizes: that it has none, or how numbers lie in memory."""


class RejectedCallError(Exception):
    """An operator cannot take the arguments that it gets."""


class OverflowingSizeError(Exception):
    """A tensor of more bytes than 63 bits count."""


class Gauge:
    """What the steps of one gate share: the ledger of the present run, memories of results, and what is unknown.

    ``own``: how operators that are not torch's answer.
    """

    def __init__(self, own: Mapping[str, Callable[..., Any]] | None = None) -> None:
        self.own = own or {}
        self.ledger = Ledger()
        self.unknown: dict[str, str] = {}
        self.results: dict[Any, Any] = {}
        self.loose = False
        self._deadline = time.thread_time() + MAX_SECONDS

    def enter(self, result: Any, what: str = "a loop") -> None:
        """Count the tensors that came to be."""
        if isinstance(result, torch.Tensor):
            self.ledger.add(result, what, halved=self.loose)
        elif isinstance(result, list | tuple):
            for item in result:
                self.enter(item, what)

    @contextmanager
    def loosely(self) -> Iterator[None]:
        """In this context element types are not known: complaints are no refusals, and half of all bytes count."""
        before, self.loose = self.loose, True
        try:
            yield
        finally:
            self.loose = before

    def check_time(self) -> None:
        """Raises RejectedCallError when the gate takes longer than any honest program."""
        if time.thread_time() > self._deadline:
            raise RejectedCallError(f"deriving its shapes takes more than {MAX_SECONDS:.0f} s of CPU time")


class GaugeBuilder(Builder):
    """Builds the same machine of measuring steps."""

    def __init__(self, gauge: Gauge) -> None:
        super().__init__(functions.resolve, functions.constant(META))
        self._gauge = gauge

    def _step(self, item: Mapping[str, Any]) -> Callable[..., Any]:
        if item["op"] in MEASURED:
            return MEASURED[item["op"]](self._gauge, *(self._branch(b).call for b in item["branches"]))
        return _Operator(self._gauge, item["op"], item["out"])

    def _inner(self) -> Builder:
        return GaugeBuilder(self._gauge)

    def finish(self, inputs: list[str], outputs: list[str], *, copies: Sequence[str] = ()) -> Machine:
        """The machine; what the program writes to is copied by steps, so that the copies are counted."""
        clone = _Operator(self._gauge, "aten.clone.default", None)
        self._steps[:0] = [(clone, [self._names[name]], self._names[name]) for name in copies]
        return super().finish(inputs, outputs)


class _Operator:
    """One call of an operator."""

    def __init__(self, gauge: Gauge, name: str, out: Any) -> None:
        self._gauge = gauge
        self.name = name
        self._out = out
        own = gauge.own.get(name)
        self._function = _shape_function(name) if own is None else own
        signature = operators.signature(name)
        self._places = signature is not None and any(
            p.name == "device" and p.keyword_only for p in signature.parameters
        )
        self._fast = FAST.get(name) or WINDOWS.get(name) or (pointwise(name) if own is None else None)
        self._untold = name in DATA or name in OTHERWISE
        self._in_place = name.partition(".")[2].partition(".")[0].endswith("_") and "__" not in name

    def __call__(self, *args: Any, **named: Any) -> Any:
        if self._untold or any_unknown(args) or any_unknown(tuple(named.values())):
            return self._unknown(args)
        if self._places and named.get("device") is None:
            named["device"] = META  # or torch would choose the processor, and take memory
        key = (self.name, _key(args), _key(tuple(named.items())))
        found = self._gauge.results.get(key)
        if found is None:
            result = self._compute(args, named)
            if not self._in_place:
                self._gauge.results[key] = _recipe(result, args, named) or ()
        else:
            result = _cooked(found) if found else self._compute(args, named)
        self._gauge.enter(result, self.name)
        return result

    def _compute(self, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        self._gauge.check_time()
        try:
            if self.name in PIECES and (pieces := PIECES[self.name](*args, **named)) != len(self._out):
                raise RejectedCallError(f"answers with {pieces} tensors where the program has {len(self._out)}")
            result = None if self._fast is None else self._fast(*args, **named)
            return _without_memory(self._function(*args, **named)) if result is None else result
        except RejectedCallError as error:
            raise RejectedCallError(self._describe(str(error), args)) from None
        except Exception as error:
            text = (str(error).strip().splitlines() or [type(error).__name__])[0]
            if _UNCOUNTABLE.search(text):
                raise OverflowingSizeError(self._describe("asks for more bytes than can be counted", args)) from None
            if isinstance(error, NotImplementedError) or self._says_nothing(text):
                return self._unknown(args)
            raise RejectedCallError(self._describe(f"cannot take its arguments: {text[:300]}", args)) from None

    def _says_nothing(self, complaint: str) -> bool:
        return self._gauge.loose or self.name in STRICTER or _SAYS_NOTHING.search(complaint) is not None

    def _unknown(self, args: tuple[Any, ...]) -> Any:
        if self._in_place and args and isinstance(args[0], torch.Tensor):
            return args[0]  # it is written to, and keeps its size
        self._gauge.unknown.setdefault(self.name, _shapes(args))
        return unknown_like(self._out)

    def _describe(self, what: str, args: tuple[Any, ...]) -> str:
        result = self._out if isinstance(self._out, str) else "its results"
        return f"{self.name} (which computes {result}, of {_shapes(args)}) {what}"


def _shape_function(name: str) -> Callable[..., Any]:
    """torch's operator, or our rule; with the checks of ``guarded``, unless they look at data."""
    if name in functions.SCALARS:
        return functions.SCALARS[name]
    operator = functions.torch_operator(name)
    if name in RULES:
        operator = RULES[name](operator)
    return GUARDED[name](operator) if name in GUARDED and not name.startswith("aten.div") else operator


def _without_memory(result: Any) -> Any:
    """The few results that a shape function makes on the processor (the sizes of a tensor as a tensor) moved away."""
    if isinstance(result, list | tuple):
        return [_without_memory(r) for r in result]
    return result.to(META) if isinstance(result, torch.Tensor) and result.device != META else result


def _key(values: tuple[Any, ...] | list[Any]) -> tuple[Any, ...]:
    """Arguments as far as sizes depend on them."""
    return tuple(
        (v.shape, v.stride(), v.dtype)
        if isinstance(v, torch.Tensor)
        else _key(v)
        if isinstance(v, list | tuple)
        else (type(v), v)
        for v in values
    )


def _recipe(result: Any, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...] | None:
    """How to make results like these again, when they have memory of their own; else None."""
    results = list(result) if isinstance(result, list | tuple) else [result]
    if not results or not all(type(r) is torch.Tensor and not r.is_complex() for r in results):
        return None
    storages = {r.untyped_storage()._cdata for r in results}
    given = {t.untyped_storage()._cdata for t in _tensors([*args, *named.values()])}
    if len(storages) < len(results) or storages & given:
        return None
    made = tuple((tuple(r.shape), r.stride(), r.dtype) for r in results)
    if any(_extent(r) != r.untyped_storage().nbytes() for r in results):
        return None
    return (made, isinstance(result, torch.Tensor))


def _cooked(recipe: tuple[Any, ...]) -> Any:
    made, single = recipe
    results = [torch.empty_strided(shape, stride, dtype=dtype, device=META) for shape, stride, dtype in made]
    return results[0] if single else results


def _extent(tensor: torch.Tensor) -> int:
    """Bytes that an empty_strided of these sizes has."""
    if tensor.numel() == 0:
        return 0
    elements: int = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return elements * int(tensor.itemsize)


def _tensors(values: list[Any] | tuple[Any, ...]) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += _tensors(value)
    return found


def _shapes(args: tuple[Any, ...]) -> str:
    """The tensors among the arguments in words: ``float32[2, 3], int64[2]``."""
    words = [f"{str(t.dtype).removeprefix('torch.')}{list(t.shape)}" for t in _tensors(args)[:6]]
    return ", ".join(words) or "no tensors"
