"""Texts of different lengths in one request: run in pieces of similar length, and put together again.

A piece is a request of its own to the batcher, which joins it with whatever else waits and fits. Filling short texts
up to the longest of their request would compute what nobody needs, and is right only where padding was proven.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from headway_runtime.errors import InvalidRequestError, RequestError
from headway_runtime.serving.steps.lengths import Lengths
from headway_runtime.serving.values import Call, Output, Reply

SIMILAR = 0.8  # of the longest of its piece: the least length of a text


def divide(lengths: Sequence[int], allowed: Lengths, *, joinable: bool) -> list[list[int]]:
    """Rows of each piece; `lengths` are tokens of each row. `joinable`: answers can be put together again.

    Raises InvalidRequestError when the texts can run neither together nor apart.
    """
    rows = range(len(lengths))
    sizes = [allowed.fitting[length] for length in lengths]
    if len(set(sizes)) <= 1 and (allowed.together or len(set(lengths)) <= 1):
        return [list(rows)]
    if not joinable:
        if allowed.together:
            return [list(rows)]
        raise InvalidRequestError(
            f"texts of {min(lengths)} to {max(lengths)} tokens in one request: this program is not proven to ignore"
            " what fills up shorter ones, and its answers cannot be put together; send them one by one"
        )
    pieces: list[list[int]] = []
    for row in sorted(rows, key=lengths.__getitem__, reverse=True):
        longest = lengths[pieces[-1][0]] if pieces else 0
        near = lengths[row] >= SIMILAR * longest if allowed.together else lengths[row] == longest
        if pieces and near:
            pieces[-1].append(row)
        else:
            pieces.append([row])
    return pieces


class Joining:
    """Collects the replies of all pieces; the call is answered once, with the whole or with the first error.

    `axes`: the axis of rows of each output.
    """

    def __init__(self, pieces: list[list[int]], axes: Mapping[str, int], call: Call) -> None:
        self._pieces, self._axes, self._call = pieces, axes, call
        self._replies: dict[int, Reply] = {}
        self.over = False

    def piece(self, number: int) -> Call:
        """The call of one piece; when another one has failed, nobody waits for it any more."""

        def done(result: Reply | RequestError | None) -> None:
            self._done(number, result)

        return replace(self._call, done=done, gone=self._gone)

    def _gone(self) -> bool:
        return self.over or self._call.gone()

    def _done(self, number: int, result: Reply | RequestError | None) -> None:
        if self.over:
            return
        if isinstance(result, Reply):
            self._replies[number] = result
            if len(self._replies) < len(self._pieces):
                return
            result = self._joined()
        self.over = True
        self._call.done(result)

    def _joined(self) -> Reply:
        replies = [self._replies[number] for number in range(len(self._pieces))]
        order = torch.tensor([row for rows in self._pieces for row in rows]).argsort()
        outputs = tuple(
            self._output([reply.outputs[at] for reply in replies], order) for at in range(len(replies[0].outputs))
        )
        return replace(
            replies[0],
            outputs=outputs,
            queue_seconds=max(reply.queue_seconds for reply in replies),
            batch_rows=max(reply.batch_rows for reply in replies),
        )

    def _output(self, parts: Sequence[Output], order: torch.Tensor) -> Output:
        axis = self._axes[parts[0].name]
        tensors = [part.value for part in parts if isinstance(part.value, torch.Tensor)]
        return replace(parts[0], value=torch.cat(tensors, dim=axis).index_select(axis, order))
