"""Static shapes, without a GPU: which bucket a run takes, and that answers are those of its own sizes."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from headway_api.podconfig import BucketCost
from headway_runtime.batching.assembly import Assembly, Joint
from headway_runtime.batching.engine import Engine
from headway_runtime.batching.layout import Layout
from headway_runtime.batching.policy import Limits
from headway_runtime.batching.static import StaticShapes
from headway_runtime.batching.turns import QUICK, quick
from headway_runtime.engines import make_engine
from headway_runtime.program import Program, load_program
from headway_runtime.serving.values import Reply
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.serving_desk import desk
from tests.unit.small_models import Encoder, export, prepare

BUCKETS = [{"batch": b, "sequence": s} for b in (8, 4, 1) for s in (16, 4)]
LAYOUT = Layout("batch", None, (0, 0), (0, 0), padded=("sequence",), fills=(0, 0))


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Program:
    folder = tmp_path_factory.mktemp("static")
    return load_program(
        prepare(export(Encoder, folder / "encoder.pt2"), folder / "encoder"), dimension_names={"sequence": "ids.1"}
    )


@given(st.integers(1, 9), st.integers(1, 17))
def test_a_run_takes_the_smallest_bucket_that_holds_it(batch: int, sequence: int) -> None:
    sizes = {"batch": batch, "sequence": sequence}
    holding = [b for b in BUCKETS if b["batch"] >= batch and b["sequence"] >= sequence]
    found = StaticShapes(LAYOUT, BUCKETS)(sizes)
    assert found == min(holding, key=lambda b: b["batch"] * b["sequence"], default=None)


def test_along_dimensions_that_are_not_padded_a_bucket_must_have_the_runs_own_size() -> None:
    static = StaticShapes(replace(LAYOUT, padded=()), BUCKETS)
    assert static({"batch": 3, "sequence": 4}) == {"batch": 4, "sequence": 4}
    assert static({"batch": 3, "sequence": 5}) is None, "it runs as it is"


class Fixed:
    """Stands where graphs would: refuses every shape but those of the captured buckets."""

    def __init__(self, program: Program, captured: Sequence[dict[str, int]]) -> None:
        self.program = program
        self.shapes = [list(program.input_shapes(sizes)) for sizes in captured]
        self.ran: list[dict[str, int]] = []

    def __call__(self, inputs: list[torch.Tensor], joint: Joint) -> Sequence[torch.Tensor]:
        assert [tuple(tensor.shape) for tensor in inputs] in self.shapes
        self.ran.append(dict(joint.sizes))
        return self.program.run(inputs)


async def test_an_engine_with_static_shapes_answers_as_if_it_had_none(encoder: Program) -> None:
    compute = Fixed(encoder, BUCKETS)
    changes = {"padded": ("sequence",), "fills": (0, 0), "batch": [1, 4, 8], "sequence": [4, 16]}
    async with desk(encoder, '{"maxWait": "0ms"}', started=False, **changes) as serving:
        layout = serving.engine.layout
        serving.engine = Engine(
            encoder,
            layout,
            Limits(8, 0.0, 100, 10**7),
            lambda outcomes, record: loop.call_soon_threadsafe(serving.pod.served, outcomes, record) and None,
            assembly=Assembly(encoder, layout, StaticShapes(layout, BUCKETS)),
            compute=lambda: compute,
        )
        loop = asyncio.get_running_loop()
        assert serving.pod.model is not None
        serving.pod.model = replace(serving.pod.model, engine=serving.engine)
        asked = []
        for rows, length in ((1, 3), (2, 9), (1, 16)):
            ids = torch.randint(1, 50, (rows, length))
            asked.append(ids)
            serving.send({"ids": ids, "mask": torch.ones_like(ids)})
        running = loop.run_in_executor(None, serving.engine.run)
        results = await serving.all()
        serving.engine.stop()
        await running
    assert compute.ran == [{"batch": 4, "sequence": 16}]
    for number, ids in enumerate(asked):
        reply = results[number]
        assert isinstance(reply, Reply)
        alone = encoder.run([ids, torch.ones_like(ids)])
        for output, expected in zip(reply.outputs, alone, strict=True):
            torch.testing.assert_close(output.value, expected, rtol=1e-4, atol=1e-5)


def test_only_a_program_whose_every_bucket_is_quick_runs_on_the_event_loop(encoder: Program) -> None:
    def costs(*seconds: float) -> list[BucketCost]:
        return [BucketCost(sizes={"batch": n, "sequence": 4}, seconds=s) for n, s in enumerate(seconds, 1)]

    assert quick(costs(QUICK / 2, QUICK))
    assert not quick(costs(QUICK / 2, QUICK * 1.1))
    assert not quick([])
    layout = Layout.of(encoder)
    for instances, seconds, inline in ((1, QUICK, True), (2, QUICK, False), (1, 2 * QUICK, False)):
        engine, cost = make_engine(encoder, layout, costs(seconds), lambda o, r: None, instances=instances)
        assert engine.inline is inline
        assert engine.instances == instances
        assert cost is not None
