"""docs/protocols.md says what the code does: bounds, headers, statuses, routes."""

from pathlib import Path

import pytest
from headway_api import names
from headway_runtime import errors
from headway_runtime.protocols import tensors
from headway_runtime.protocols.http import answers, bodies, connection, front, patience

GUIDE = Path("docs/protocols.md").read_text()


@pytest.mark.parametrize(
    "said",
    [
        f"| head | {connection.MAX_HEAD >> 10} KiB, {patience.HEAD_SECONDS:.0f} s |",
        f"| an answer that is not read | {patience.STALL_SECONDS:.0f} s;",
        f"| an idle connection | {patience.KEEP_ALIVE_SECONDS:,.0f} s |",
        f"| JSON of {bodies.WORTH_COMPRESSING >> 10} KiB and more is compressed",
        f"JSON of more than {bodies.LARGE >> 10} KiB is parsed in a thread",
        f"Port {names.INFERENCE_PORT}",
        f"gRPC is on {names.GRPC_PORT}",
        "four times `limits.requestBytes`",
        *(f"`{name}`" for name in (names.TIMEOUT_HEADER, names.PRIORITY_HEADER, names.REVISION_HEADER)),
        *(f"`{name}`" for name in (answers.QUEUE_HEADER, answers.BATCH_HEADER)),
        f"`{answers.CACHE_HEADER}: hit`",
        f"`{names.NOT_ADMITTED_HEADER}: 1`",
        *sorted(tensors.IN_BINARY_ONLY),
    ],
)
def test_what_the_guide_says_is_so(said: str) -> None:
    assert front.BODIES == 4
    assert said in GUIDE


def test_every_status_of_an_error_stands_in_the_guide() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.RequestError)]
    for status in {kind.status for kind in kinds}:
        assert f"| {status}" in GUIDE, status
