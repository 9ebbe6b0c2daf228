"""What the next step runs: the rule, case by case."""

import random
from dataclasses import replace

from headway_runtime.generation.admission import OVERTAKERS
from headway_runtime.generation.line import Refusal
from headway_runtime.generation.scheduler import LOGITS
from headway_runtime.generation.sequence import State
from headway_runtime.generation.shares import shares
from headway_runtime.generation.values import FinishReason, Sampling

from tests.unit.generation_desk import Client, Desk, ask, prompt, rows, running
from tests.unit.generation_fakes import expected, text_of


def test_a_lone_request_is_answered_as_the_decoder_continues_it() -> None:
    desk = Desk()
    client = desk.submit(ask(prompt(5), 20))
    desk.run()
    assert client.tokens() == expected(prompt(5), 20)
    assert client.text() == text_of(expected(prompt(5), 20))
    assert client.finish() is FinishReason.LENGTH
    assert (client.usage.prompt, client.usage.completion) == (5, 20)


def test_sequences_join_and_leave_between_steps() -> None:
    desk = Desk()
    desk.submit(ask(prompt(5, 1), 3))
    desk.step()
    desk.submit(ask(prompt(6, 2), 5))
    assert rows(desk.step()) == {1: 1, 2: 6}
    assert rows(desk.step()) == {1: 1, 2: 1}
    assert rows(desk.step()) == {2: 1}


def test_a_long_prompt_runs_in_chunks_and_answers_go_on_meanwhile() -> None:
    desk = Desk(step_tokens=32)
    desk.submit(ask(prompt(5, 1), 50))
    desk.step()
    desk.submit(ask(prompt(100, 2), 5))
    assert [rows(desk.step()) for _ in range(4)] == [{1: 1, 2: 31}, {1: 1, 2: 31}, {1: 1, 2: 31}, {1: 1, 2: 7}]


def test_a_short_prompt_does_not_wait_for_a_long_one_before_it() -> None:
    desk = Desk(blocks=200, step_tokens=32, max_length=2000)
    long = desk.submit(ask(prompt(1000, 1), 5))
    desk.step()
    short = desk.submit(ask(prompt(10, 2), 5))
    assert rows(desk.step()) == {1: 22, 2: 10}
    desk.run()
    assert short.at[0] < 3 < 30 < long.at[0]


def test_a_long_prompt_gets_half_of_what_is_left_however_many_short_ones_come() -> None:
    desk = Desk(blocks=400, step_tokens=32, max_length=2000)
    long = desk.submit(ask(prompt(600, 1), 1))
    steps = 0
    while not long.ended:
        for seed in range(4):
            desk.submit(ask(prompt(15, 10 * steps + seed), 1))
        step = desk.step()
        steps += 1
        assert rows(step)[1] >= 16 or long.ended
    assert steps <= 600 / 16 + 1


def test_shares_are_half_for_the_first_and_the_rest_for_the_shortest() -> None:
    assert shares(100, [500]) == [100]
    assert shares(100, [500, 300, 20]) == [50, 30, 20]
    assert shares(100, [500, 20, 10]) == [70, 20, 10]
    assert shares(100, [10, 500]) == [10, 90]
    assert shares(1, [10, 5]) == [1, 0]
    assert shares(0, [10]) == [0]
    assert shares(10, []) == []


def test_who_preempts_is_before_who_is_preempted_and_both_end_well() -> None:
    desk = Desk(blocks=9, max_length=100)  # 8 blocks are 128 tokens
    clients = [desk.submit(ask(prompt(20, seed), 60)) for seed in range(3)]
    desk.run()
    assert sum(record.preempted for record in desk.records) > 0
    for seed, client in enumerate(clients):
        assert client.tokens() == expected(prompt(20, seed), 60)
    assert clients[0].at[-1] == 60  # the first was never held up


def test_preemption_does_not_thrash() -> None:
    """Far more than the pool is asked for. With one block of headroom 58 are preempted, and half of what is made was
    run twice.
    """
    chance = random.Random(2)
    desk = Desk(blocks=65, max_length=1000)
    for seed in range(60):
        desk.submit(ask(prompt(40, seed), chance.randint(50, 300)))
    desk.run()
    made = sum(record.made for record in desk.records)
    prompts = 60 * 39  # the last token of a prompt, and of each step, makes one of the answer
    recomputed = sum(record.tokens for record in desk.records) - prompts - made
    assert sum(record.preempted for record in desk.records) < 45
    assert recomputed < 0.4 * made


def test_the_last_in_line_waits_for_a_block_instead_of_losing_all_of_its_own() -> None:
    desk = Desk(blocks=5, max_length=64)
    first = desk.submit(ask(prompt(30, 1), 15))
    desk.step()
    second = desk.submit(ask(prompt(15, 2), 10))
    desk.run()
    assert sum(record.preempted for record in desk.records) <= 1
    assert first.tokens() == expected(prompt(30, 1), 15)
    assert second.tokens() == expected(prompt(15, 2), 10)


def test_a_request_that_does_not_fit_is_overtaken_by_a_few_and_then_by_nobody() -> None:
    desk = Desk(blocks=21, max_length=320)
    desk.submit(ask(prompt(100, 1), 100))
    desk.step()
    large = desk.submit(ask(prompt(250, 2), 5))
    small = [desk.submit(ask(prompt(5, 10 + seed), 4)) for seed in range(OVERTAKERS + 3)]
    for _ in range(20):
        desk.step()
    assert not running(large)
    assert [bool(client.ended) for client in small] == [True] * OVERTAKERS + [False] * 3
    desk.run()
    assert large.at[0] <= min(client.at[0] for client in small[OVERTAKERS:])


def test_nobody_takes_the_blocks_that_a_prompt_in_chunks_will_need() -> None:
    desk = Desk(blocks=21, max_length=320, step_tokens=64)
    long = desk.submit(ask(prompt(250, 1), 5))
    desk.step()
    short = desk.submit(ask(prompt(60, 2), 5))
    desk.run()
    assert long.at[0] == 4
    assert short.at[0] > long.at[-1]
    assert not any(record.preempted for record in desk.records)


def test_no_more_run_than_max_sequences_and_a_share_of_the_tokens_is_left_for_prompts() -> None:
    desk = Desk(max_sequences=3)
    for seed in range(6):
        desk.submit(ask(prompt(5, seed), 5))
    assert len(desk.step().works) == 3
    desk = Desk(step_tokens=16)
    for seed in range(20):
        desk.submit(ask(prompt(3, seed), 50))
    for _ in range(20):
        desk.step()
    assert len(desk.scheduler.running) == 14


def test_a_full_line_refuses_by_answers_and_by_bytes() -> None:
    desk = Desk(capacity=3)
    assert desk.offer(ask(prompt(5), n=3), Client()) is None
    assert desk.offer(ask(prompt(5)), Client()) is Refusal.ANSWERS
    desk = Desk(prompt_bytes=100)
    assert desk.offer(ask(prompt(10)), Client()) is None
    assert desk.offer(ask(prompt(3)), Client()) is Refusal.BYTES
    assert desk.offer(ask(prompt(2)), Client()) is None
    desk.run()
    assert desk.scheduler.line.prompt_bytes == 0


def test_who_is_late_is_dropped_and_who_has_begun_only_at_its_deadline() -> None:
    desk = Desk(max_sequences=1)
    desk.submit(ask(prompt(5), 30), first_by=1, deadline=8)
    waits = desk.submit(ask(prompt(6), 30), first_by=3)
    desk.step()
    assert desk.scheduler.expire(2.9) == []
    assert desk.scheduler.expire(3.0) == [waits.request]
    assert desk.scheduler.expire(7.9) == []
    assert [request.id for request in desk.scheduler.expire(8.0)] == [1]
    assert not desk.scheduler.requests
    assert desk.scheduler.pool.used == 0


def test_while_a_step_runs_only_those_are_dropped_that_it_cannot_hold() -> None:
    desk = Desk(max_sequences=1)
    desk.submit(ask(prompt(5), 30), deadline=2)
    waits = desk.submit(ask(prompt(6), 30), deadline=2)
    desk.step()
    assert desk.scheduler.expire(3.0, between_steps=False) == [waits.request]
    assert len(desk.scheduler.expire(3.0)) == 1


def test_several_answers_share_the_prompt_which_runs_once() -> None:
    desk = Desk()
    client = desk.submit(ask(prompt(40), 20, n=4, sampling=Sampling(seed=3)))
    assert rows(desk.step()) == {1: 40}
    assert sum(work.rows for work in desk.step().works) == 4
    assert desk.scheduler.pool.used == 2 + 4  # two full blocks are everyone's
    assert desk.decoder.copies == 3
    desk.run()
    assert len({client.tokens(index) for index in range(4)}) == 4
    assert client.usage.completion == 80
    assert client.usage.prompt == 40


def test_several_answers_run_after_each_other_where_there_are_not_as_many_places() -> None:
    desk = Desk(max_sequences=2)
    client = desk.submit(ask(prompt(40), 10, n=5))
    desk.run()
    assert [client.tokens(index) for index in range(5)] == [expected(prompt(40), 10)] * 5


def test_an_answer_ends_at_an_end_token_which_has_no_text() -> None:
    answer = expected(prompt(5), 30)
    stop = answer[9]
    end = answer.index(stop) + 1
    desk = Desk()
    client = desk.submit(ask(prompt(5), 30, stop_tokens=frozenset({stop})))
    desk.run()
    assert client.tokens() == answer[:end]
    assert client.text() == text_of(answer[: end - 1])
    assert client.finish() is FinishReason.STOP


def test_a_stop_text_is_cut_off_wherever_tokens_end() -> None:
    text = text_of(expected(prompt(5), 30))
    stop = text[15:18]
    desk = Desk()
    client = desk.submit(ask(prompt(5), 30, stop=(stop,)))
    desk.run()
    assert client.text() == text[: text.index(stop)]
    assert client.finish() is FinishReason.STOP
    assert stop not in text_of(client.tokens()[:-1])


def test_a_sequence_ends_where_there_is_no_room_for_more() -> None:
    desk = Desk(max_length=50)
    client = desk.submit(ask(prompt(40), 100))
    desk.run()
    assert client.usage.completion == 10
    assert client.finish() is FinishReason.LENGTH


def test_lowering_the_tokens_of_a_step_stops_nobody() -> None:
    desk = Desk(max_sequences=16)
    clients = [desk.submit(ask(prompt(5, seed), 20)) for seed in range(10)]
    desk.step()
    late = desk.submit(ask(prompt(50, 99), 5))
    desk.step()
    desk.scheduler.settings = replace(desk.scheduler.settings, step_tokens=4)
    desk.run()
    assert all(client.usage.completion == 20 for client in clients)
    assert late.tokens() == expected(prompt(50, 99), 5)


def test_logprobs_of_a_prompt_are_told_in_chunks_that_bound_the_logits() -> None:
    desk = Desk(step_tokens=256)
    other = desk.submit(ask(prompt(100), 3))
    client = desk.submit(ask(prompt(100), 3, prompt_logprobs=2, logprobs=1))
    desk.run()
    told = client.usage.prompt_logprobs
    assert len(told) == 100
    assert told[0] is None
    assert tuple(each.token for each in told[1:] if each is not None) == prompt(100)[1:]
    assert all(each is not None and len(each.top) == 2 and each.logprob <= 0 for each in told[1:])
    assert max(desk.decoder.logit_rows) <= LOGITS
    assert client.tokens() == other.tokens()
    assert [each.token for each in client.logprobs()] == list(client.tokens())


def test_logprobs_of_a_prompt_survive_preemption() -> None:
    alone = Desk()
    reference = alone.submit(ask(prompt(60, 5), 3, prompt_logprobs=0))
    alone.run()
    desk = Desk(blocks=9, max_length=100, step_tokens=16)
    first = desk.submit(ask(prompt(30, 1), 60))
    second = desk.submit(ask(prompt(60, 5), 30, prompt_logprobs=0))
    desk.run()
    assert sum(record.preempted for record in desk.records) > 0
    assert second.usage.prompt_logprobs == reference.usage.prompt_logprobs
    assert first.tokens() == expected(prompt(30, 1), 60)


def test_a_request_that_left_frees_its_blocks_and_its_place() -> None:
    desk = Desk(max_sequences=2)
    gone = desk.submit(ask(prompt(40, 1), 50, n=2))
    desk.step()
    waits = desk.submit(ask(prompt(40, 2), 5))
    desk.step()
    assert not running(waits)
    assert gone.request is not None
    desk.scheduler.drop(gone.request)
    desk.stepper.forget(gone.request)
    assert desk.scheduler.pool.used == 0
    assert [sequence.state for sequence in gone.request.sequences] == [State.OUT] * 2
    desk.run()
    assert waits.usage.completion == 5


def test_little_of_the_pool_is_wasted_over_a_mixed_run() -> None:
    """Waste: what is allocated and not filled, or holds what another block holds. The issue allows 4 %."""
    chance = random.Random(5)
    desk = Desk(blocks=400, max_length=600, max_sequences=16, step_tokens=256)
    allocated = wasted = 0
    lengths = [(chance.randint(32, 256), chance.randint(8, 200)) for _ in range(60)]
    arrivals = sorted(chance.uniform(0, 500) for _ in lengths)
    while arrivals or desk.scheduler.requests:
        while arrivals and (arrivals[0] <= desk.now or not desk.scheduler.requests):
            arrivals.pop(0)
            length, answer = lengths[len(arrivals)]
            desk.submit(ask(prompt(length, len(arrivals)), answer))
        desk.step()
        held = {block: 0 for sequence in desk.scheduler.running for block in sequence.blocks}
        contents = set()
        for sequence in desk.scheduler.running:
            for number, block in enumerate(sequence.blocks):
                filled = max(0, min(16, sequence.computed - 16 * number))
                held[block] = max(held[block], filled)
                contents.add(tuple(sequence.tokens[: 16 * number + filled]))
        allocated += 16 * len(held)
        wasted += 16 * len(held) - sum(held.values()) + 16 * (len(held) - len(contents))
    assert wasted / allocated < 0.04
    print(f"wasted: {wasted / allocated:.2%} of what was allocated")
