"""The step `image`: a BYTES input of encoded images becomes pixels. One image a thread, as many as the CPU limit."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from headway_runtime.errors import InvalidRequestError, RequestError, TooLargeError
from headway_runtime.prepare.beside.steps import Image
from headway_runtime.program import TensorSpec
from headway_runtime.program.datatypes import BY_PROTOCOL
from headway_runtime.serving.steps.crew import Crew, Hand, Job, Timed
from headway_runtime.serving.steps.pixels import Array, Recipe
from headway_runtime.serving.steps.values import Core, go_on, items_of
from headway_runtime.serving.values import Call, Given, Value

MAX_IMAGES = 256  # of one request


@dataclass(frozen=True, slots=True)
class Encoded:
    """One image of a request, and how a message names it."""

    data: bytes
    where: str


class ImageStep:
    """`spec`: the input that gets the pixels."""

    def __init__(self, declared: Image, spec: TensorSpec, hand: Hand, timed: Timed, *, threads: int) -> None:
        self.declared = declared
        self._dtype = BY_PROTOCOL[spec.datatype]
        self._recipe = Recipe.of(declared, floating=self._dtype.is_floating_point)
        self._empty = tuple(size if isinstance(size, int) else 1 for size in spec.shape[1:])
        self.crew: Crew[Encoded, Array] = Crew("image", self._work, hand, timed, threads=threads, most=1, bytes=1)

    @property
    def input(self) -> str:
        """The name of its BYTES input."""
        return self.declared.input

    @property
    def fills(self) -> tuple[str, ...]:
        """The inputs that it gives."""
        return (self.declared.tensor,)

    def call(self, given: Given, call: Call, then: Core) -> None:
        """Go on with pixels. Raises RequestError."""
        name, tensor = self.input, self.declared.tensor
        if tensor in given.inputs:
            raise InvalidRequestError(f"input {tensor!r} is made from {name!r}: give one of them")
        items = items_of(name, given.inputs[name])
        if len(items) > MAX_IMAGES:
            raise InvalidRequestError(f"input {name!r}: {len(items)} images; at most {MAX_IMAGES} in one request")
        if len(items) > self.crew.capacity:  # it would be told to come back, in vain
            limit = f"at most {self.crew.capacity} are ever admitted (spec.batching.queue.capacity)"
            raise TooLargeError(f"input {name!r}: {len(items)} images; {limit}")
        rest = {other: value for other, value in given.inputs.items() if other != name}
        gathering = _Gathering(len(items), call, lambda arrays: then(self._with(given, rest, arrays), call))
        if not items:
            then(self._with(given, rest, []), call)
        part = replace(call, gone=gathering.gone)
        try:
            for row, item in enumerate(items):
                image = Encoded(item, f"input {name!r}, image {row}")
                self.crew.submit(Job(image, len(item), part, gathering.slot(row)))
        except RequestError:
            gathering.fail()
            raise

    def _with(self, given: Given, rest: Mapping[str, Value], arrays: Sequence[Array]) -> Given:
        return replace(given, inputs={**rest, self.declared.tensor: self.pixels(arrays)})

    def pixels(self, arrays: Sequence[Array]) -> torch.Tensor:
        """[rows, …] in the program's type."""
        shapes = {array.shape for array in arrays}
        if len(shapes) > 1:
            raise InvalidRequestError(
                f"input {self.input!r}: images of different sizes in one request ({min(shapes)}, {max(shapes)}), and"
                " this model does not resize them; send them one by one"
            )
        if not arrays:
            return torch.zeros((0, *self._empty), dtype=self._dtype)
        return torch.from_numpy(arrays[0][None] if len(arrays) == 1 else np.stack(arrays)).to(self._dtype)

    def _work(self, payloads: Sequence[Encoded]) -> list[Array | RequestError]:
        found: list[Array | RequestError] = []
        for payload in payloads:
            try:
                found.append(self._recipe.array(payload.data, payload.where))
            except RequestError as error:
                found.append(error)
        return found


class _Gathering:
    """The images of one request, which come back one by one: all of them, or the first error."""

    def __init__(self, count: int, call: Call, then: Callable[[list[Array]], None]) -> None:
        self._arrays: dict[int, Array] = {}
        self._count, self._call, self._then = count, call, then
        self._over = False

    def gone(self) -> bool:
        """Whether nobody waits for the rest of them."""
        return self._over or self._call.gone()

    def slot(self, row: int) -> Callable[[Array | RequestError | None], None]:
        """What the crew calls with one of them."""

        def done(result: Array | RequestError | None) -> None:
            if self._over:
                return
            if isinstance(result, np.ndarray):
                self._arrays[row] = result
                if len(self._arrays) == self._count:
                    self._over = True
                    go_on(self._call, self._then, [self._arrays[at] for at in range(self._count)])
            else:
                self._over = True
                self._call.done(result)

        return done

    def fail(self) -> None:
        """The call was answered otherwise."""
        self._over = True
