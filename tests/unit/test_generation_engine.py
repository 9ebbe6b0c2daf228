"""The engine with its thread: what clients get, and that one request's misfortune is not another's."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from headway_runtime.batching.tickets import Priority
from headway_runtime.generation.delivery import Delivery, StepRecord
from headway_runtime.generation.engine import Engine
from headway_runtime.generation.sampling import Sampler
from headway_runtime.generation.settings import Settings
from headway_runtime.generation.values import Generate, Stream

from tests.unit.generation_desk import FOREVER, Client, ask
from tests.unit.generation_fakes import VOCABULARY, FakeDecoder, expected, tokenizer

PATIENCE = 30.0


class House:
    """An engine whose thread runs, and which delivers at once. `pause` holds it before a step."""

    def __init__(self, decoder: FakeDecoder, settings: Settings) -> None:
        self.records: list[StepRecord] = []
        self.engine = Engine(decoder, Sampler(VOCABULARY), tokenizer(), settings, self._deliver)
        self.thread = threading.Thread(target=self.engine.run)

    def _deliver(self, deliveries: Sequence[Delivery], record: StepRecord | None) -> None:
        for delivery in deliveries:
            delivery.hand_over()
        if record is not None:
            self.records.append(record)

    def submit(
        self,
        generate: Generate,
        *,
        deadline: float = FOREVER,
        first_by: float = FOREVER,
        priority: Priority = Priority.NORMAL,
    ) -> tuple[int, Client]:
        client = Client()
        stream = Stream(deadline, first_by, client.pieces.extend, client.ended.append, priority)
        return self.engine.submit(generate, stream), client


@contextmanager
def open_house(decoder: FakeDecoder | None = None, **settings: object) -> Iterator[House]:
    house = House(decoder or FakeDecoder(), Settings(**{"max_length": 512, **settings}))  # type: ignore[arg-type]
    house.thread.start()
    try:
        yield house
    finally:
        house.engine.stop()
        house.thread.join(PATIENCE)
        assert not house.thread.is_alive()


def until(holds: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.002)


def test_requests_are_answered_each_as_if_it_were_alone() -> None:
    with open_house() as house:
        clients = [house.submit(ask((7, 8, number), 30))[1] for number in range(1, 9)]
        until(lambda: all(client.ended for client in clients))
    for number, client in enumerate(clients, 1):
        assert client.tokens() == expected((7, 8, number), 30)
        assert client.usage.completion == 30
