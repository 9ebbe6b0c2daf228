"""What passes between a protocol and the batcher. Nothing here belongs to one protocol, and nothing waits."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import torch

from headway_runtime.batching.layout import Tensors
from headway_runtime.batching.policy import Priority
from headway_runtime.errors import RequestError
from headway_runtime.light import light


@dataclass(frozen=True, slots=True)
class BytesArray:
    """A tensor of the protocol's type BYTES: `items` in row-major order, as many as `shape` has elements."""

    shape: tuple[int, ...]
    items: tuple[bytes, ...]


Value: TypeAlias = torch.Tensor | BytesArray


@light
class Given:
    """A request as a client wrote it: named inputs, and the names of the outputs it wants (None: all).

    `classes`: outputs of which it wants the best classes instead of the scores, and how many (`steps.labels`).
    """

    inputs: Mapping[str, Value]
    outputs: tuple[str, ...] | None = None
    classes: Mapping[str, int] = field(default_factory=dict)


@light
class Request:
    """A checked request: inputs in the program's order, axis sizes by dimension, positions of the wanted outputs.

    `padded` are its sizes along the padded dimensions. Requests of one `group` may share a run (`Layout.group_key`);
    None: this one shares with nobody, as one that is beyond the largest bucket of a dimension other than the batch.
    """

    inputs: Tensors
    sizes: dict[str, int]
    rows: int
    bytes: int
    outputs: tuple[int, ...]
    padded: tuple[int, ...]
    group: Hashable


@light
class Output:
    """One named output; `datatype` is the protocol's, such as FP32."""

    name: str
    datatype: str
    value: Value


@light
class Reply:
    """What a request gets: its outputs, the seconds it waited, the rows that ran with it, and what else there is to
    say, as the protocols' `parameters`.
    """

    outputs: tuple[Output, ...]
    queue_seconds: float = 0.0
    batch_rows: int = 0
    cached: bool = False
    parameters: Mapping[str, int] = field(default_factory=dict)


Done = Callable[[Reply | RequestError | None], None]
"""Called once, on the event loop. None: the client is gone, nobody wants an answer."""


@light
class Call:
    """The circumstances of a request. `deadline` is of time.monotonic(): it must have started by then."""

    deadline: float
    gone: Callable[[], bool]
    done: Done
    priority: Priority = Priority.NORMAL
