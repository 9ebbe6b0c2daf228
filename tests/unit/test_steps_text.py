"""Texts to tokens: in a pod as its clients see it, and each part by itself."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from headway_runtime.errors import DeadlineExceededError, FatalError, InvalidRequestError, QueueFullError, RequestError
from headway_runtime.serving.steps.crew import Crew, Job
from headway_runtime.serving.steps.lengths import Lengths
from headway_runtime.serving.steps.pieces import divide
from headway_runtime.serving.steps.tokens import Tokenizer
from headway_runtime.serving.values import Call
from tokenizers import Regex, models, pre_tokenizers
from tokenizers import Tokenizer as Library

from tests.unit.pod_process import PodProcess, pod, tensor
from tests.unit.steps_models import Encoder, encoder, expected, ids_of, maskless, prepared, tokenizer

TEXTS = ["the cat sat", "a dog ran under the red mat", "cat", "the dog ran"]


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PodProcess]:
    folder = tmp_path_factory.mktemp("text")
    with pod(folder, prepared(encoder(folder))) as process:
        process.wait_for_phase()
        yield process


def ask(serving: PodProcess, *inputs: dict[str, Any], **more: Any) -> httpx.Response:
    return serving.client.post(serving.infer, json={"inputs": list(inputs), **more})


def texts(*items: str, name: str = "text") -> dict[str, Any]:
    return tensor(name, "BYTES", [len(items)], list(items))


def outputs(response: httpx.Response) -> dict[str, Any]:
    assert response.status_code == 200, response.text
    return {
        o["name"]: torch.tensor(o["data"]).reshape(o["shape"])
        for o in response.json()["outputs"]
        if "FP" in o["datatype"]
    }


def error(response: httpx.Response) -> str:
    assert response.status_code == 400, response.text
    return str(response.json()["error"])


def test_texts_of_different_lengths_are_answered_as_each_alone(serving: PodProcess) -> None:
    found = outputs(ask(serving, texts(*TEXTS)))
    for row, text in enumerate(TEXTS):
        for name, value in expected(text).items():
            assert torch.allclose(found[name][row], value[0], atol=1e-6), (text, name)


def test_one_text_is_the_same_as_its_ids(serving: PodProcess) -> None:
    ids = [ids_of(TEXTS[1])]
    tensors = (tensor("ids", "INT64", [1, 9], ids), tensor("mask", "INT64", [1, 9], [[1] * 9]))
    by_text, by_ids = outputs(ask(serving, texts(TEXTS[1]))), outputs(ask(serving, *tensors))
    assert all(torch.equal(by_text[name], by_ids[name]) for name in by_text)


def test_the_model_shows_texts_and_what_may_be_given_instead(serving: PodProcess) -> None:
    found = serving.client.get(f"{serving.url}/v2/models/encoder").json()
    (text,) = found["inputs"]
    assert (text["name"], text["datatype"], text["shape"]) == ("text", "BYTES", [-1])
    assert [i["name"] for i in text["parameters"]["instead"]] == ["ids", "mask"]
    assert [o["name"] for o in found["outputs"]] == ["embedding", "scores", "label", "score"]


def test_an_answer_from_the_cache_is_the_same(serving: PodProcess) -> None:
    serving.apply_knobs({"maxWait": "0ms", "cacheBytes": "1Mi"})
    first, second = (ask(serving, texts("the hat", "red")) for _ in range(2))
    serving.apply_knobs({"maxWait": "0ms"})
    assert first.json() == second.json()
    assert second.headers["x-headway-cache"] == "hit"


def test_many_long_texts_go_to_the_crew_and_come_back_in_order(serving: PodProcess) -> None:
    many = [" ".join(["cat"] * (1 + row % 30)) for row in range(64)]
    found = outputs(ask(serving, texts(*many)))["embedding"]
    for row in (0, 1, 29, 30, 63):
        assert torch.allclose(found[row], expected(many[row])["embedding"][0], atol=1e-6), row


def test_more_texts_than_can_ever_wait_are_too_large_and_not_to_come_again(serving: PodProcess) -> None:
    serving.apply_knobs({"maxWait": "0ms", "queue": {"capacity": 9}})
    items = [" ".join(["cat"] * length) for length in range(1, 11)]  # in pieces, each of which could wait
    answer = ask(serving, texts(*items))
    serving.apply_knobs({"maxWait": "0ms"})
    assert answer.status_code == 413, answer.text
    assert "10 texts; at most 9 are ever admitted (spec.batching.queue.capacity)" in answer.text


def test_no_text_is_no_row(serving: PodProcess) -> None:
    found = outputs(ask(serving, texts()))
    assert list(found["embedding"].shape) == [0, 8]


def test_a_shape_with_an_axis_of_one_is_a_column_of_texts(serving: PodProcess) -> None:
    found = ask(serving, tensor("text", "BYTES", [2, 1], [["cat"], ["dog"]]), outputs=[{"name": "embedding"}])
    assert torch.allclose(outputs(found)["embedding"][1], expected("dog")["embedding"][0], atol=1e-6)


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ([texts("cat", name="words")], "input 'words' is not one of this model's: 'text' (or 'ids', 'mask')"),
        ([], "input 'text' is missing"),
        ([tensor("ids", "INT64", [1, 1], [[2]])], "input 'mask' is missing"),
        ([texts("cat"), tensor("ids", "INT64", [1, 1], [[2]])], "input 'ids' is made from 'text': give one of them"),
        ([tensor("text", "INT64", [1], [7])], "input 'text': 'datatype' must be BYTES"),
        ([tensor("text", "BYTES", [1, 2], ["a", "b"])], "input 'text': 'shape' must be [rows]"),
        ([texts("cat", " ".join(["dog"] * 31))], "input 'text', text 1: 33 tokens; at most 32 are taken (the"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_by_name(serving: PodProcess, inputs: list[dict[str, Any]], words: str) -> None:
    assert words in error(ask(serving, *inputs))


def test_a_longer_text_is_cut_where_the_record_says_so_and_the_answer_tells(tmp_path: Path) -> None:
    with pod(tmp_path, prepared(encoder(tmp_path, truncate=True))) as serving:
        serving.wait_for_phase()
        long = " ".join(["dog", "cat"] * 30)
        found = ask(serving, texts("cat", long))
    assert found.json()["parameters"] == {"truncated": 1}
    ids = torch.tensor([[*ids_of(long)[:31], 3]])
    with torch.no_grad():
        wanted = Encoder().eval()(ids, torch.ones_like(ids))
    assert torch.allclose(outputs(found)["embedding"][1], wanted["embedding"][0], atol=1e-6)


def test_without_a_mask_nothing_is_filled_up_and_the_answers_are_joined(tmp_path: Path) -> None:
    with pod(tmp_path, prepared(maskless(tmp_path))) as serving:
        serving.wait_for_phase()
        given = [*TEXTS, "a dog ran under the mat"]  # nearly as long as another: together they would be filled up
        found = outputs(ask(serving, texts(*given)))
    for row, text in enumerate(given):
        assert torch.allclose(found["embedding"][row], expected(text)["embedding"][0], atol=1e-6), text


def lengths(*, together: bool) -> Lengths:
    return Lengths(tuple(range(33)), together, "a test")


def test_pieces_are_of_similar_length_where_filling_up_is_proven() -> None:
    assert divide([10, 9, 3, 8, 2], lengths(together=True), joinable=True) == [[0, 1, 3], [2], [4]]
    assert divide([10, 9, 3], lengths(together=True), joinable=False) == [[0, 1, 2]]
    assert divide([7, 7], lengths(together=False), joinable=False) == [[0, 1]]
    assert divide([7, 5, 7], lengths(together=False), joinable=True) == [[0, 2], [1]]
    with pytest.raises(InvalidRequestError, match="send them one by one"):
        divide([7, 5], lengths(together=False), joinable=False)


@pytest.mark.parametrize("data", [b"{}", b"no", b"[]", b'{"model": {}}', b"\xff", b'{"version": "9.9", "model": null}'])
def test_a_file_that_is_no_tokenizer_is_refused(data: bytes) -> None:
    with pytest.raises(FatalError, match="the tokenizer of the artifact cannot be used") as refused:
        Tokenizer(data)
    assert (refused.value.condition, refused.value.reason) == ("ArtifactVerified", "UnsupportedProgram")


def test_a_text_is_not_tokenized_on_the_event_loop_by_patterns_of_the_author(tmp_path: Path) -> None:
    data = tokenizer(tmp_path / "tokenizer.json").read_bytes()
    assert Tokenizer(data).linear
    made = Library.from_str(data.decode())
    made.pre_tokenizer = pre_tokenizers.Split(Regex(" "), "removed")
    assert not Tokenizer(made.to_str().encode()).linear
    assert not Tokenizer(made.to_str().replace('"Regex"', '"\\u0052ege\\u0078"').encode()).linear  # the same to JSON


def test_a_text_on_which_the_library_panics_fails_alone_and_others_go_on() -> None:
    made = Library(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Split(Regex("(a+)+$"), "removed")  # tried again and again, until it gives up
    found = Tokenizer(made.to_str().encode())
    sheet = Sheet()
    crew: Crew[str, Any] = Crew("text", found.encode, hand, untimed, threads=1, most=9, bytes=999)
    crew.submit(sheet.job("a" * 40 + "b", wanted=2))
    crew.submit(sheet.job("good", wanted=2))
    assert sheet.full.wait(60)
    crew.stop()
    failed, good = sorted(sheet.results, key=lambda result: not isinstance(result, RequestError))
    assert "the step text failed on this request: PanicException" in str(failed)
    assert good.ids == [0]


def test_texts_are_cut_at_the_end_that_the_file_names(tmp_path: Path) -> None:
    made = Library.from_file(str(tokenizer(tmp_path / "tokenizer.json")))
    for direction, words in (("right", "the cat"), ("left", "sat on")):
        made.enable_truncation(9, direction=direction)
        found = Tokenizer(made.to_str().encode())
        assert not found.encode(["the cat sat on"])[0].cut
        found.cut_at(4)
        (tokens,) = found.encode(["the cat sat on"])
        assert (tokens.ids, tokens.cut) == (ids_of(words), True)


def hand(function: Any, *args: Any) -> None:
    function(*args)


def untimed(step: str, seconds: float) -> None:
    assert seconds >= 0


class Sheet:
    """Collects what jobs are told."""

    def __init__(self) -> None:
        self.results: list[Any] = []
        self.full = threading.Event()

    def job(self, payload: str, *, seconds: float = 10.0, gone: bool = False, wanted: int = 1) -> Job[str, str]:
        def done(result: Any) -> None:
            self.results.append(result)
            if len(self.results) >= wanted:
                self.full.set()

        call = Call(time.monotonic() + seconds, lambda: gone, lambda _: None)
        return Job(payload, len(payload), call, done)


def test_what_waits_together_is_worked_on_together() -> None:
    entered, go_on, turns = threading.Event(), threading.Event(), []

    def work(payloads: Any) -> list[str]:
        turns.append(list(payloads))
        entered.set()
        assert go_on.wait(60)
        return [payload.upper() for payload in payloads]

    sheet = Sheet()
    crew: Crew[str, str] = Crew("test", work, hand, untimed, threads=1, most=3, bytes=100)
    crew.submit(sheet.job("a", wanted=6))
    assert entered.wait(60)
    for text in ("b", "c", "d", "e", "f" * 200):
        crew.submit(sheet.job(text, wanted=6))
    assert crew.busy_for() > 0
    go_on.set()
    assert sheet.full.wait(60)
    assert turns == [["a"], ["b", "c", "d"], ["e"], ["f" * 200]]
    assert sheet.results[:3] == ["A", "B", "C"]
    crew.stop()


def test_a_failure_of_one_is_its_own_even_when_it_is_no_exception() -> None:
    class Panic(BaseException):
        pass

    def work(payloads: Any) -> list[str]:
        if "bad" in payloads:
            raise Panic("index out of bounds")
        return list(payloads)

    sheet = Sheet()
    crew: Crew[str, str] = Crew("test", work, hand, untimed, threads=0, most=9, bytes=100)
    jobs = [sheet.job(text) for text in ("good", "bad", "fine")]
    assert [str(result) for _, result in crew._turn(jobs)] == [
        "good",
        "the step test failed on this request: Panic: index out of bounds",
        "fine",
    ]


def test_the_late_and_the_gone_cost_nothing_and_a_full_line_is_told() -> None:
    worked: list[str] = []
    crew: Crew[str, str] = Crew(
        "test", lambda p: [worked.extend(p) or "" for _ in p], hand, untimed, threads=0, most=9, bytes=9
    )
    sheet = Sheet()
    crew.capacity = 2
    crew.submit(sheet.job("late", seconds=-1))
    crew.submit(sheet.job("gone", gone=True))
    with pytest.raises(QueueFullError, match="2 requests wait for the step test"):
        crew.submit(sheet.job("more"))
    crew.sweep()
    assert isinstance(sheet.results[0], DeadlineExceededError)
    assert sheet.results[1] is None
    crew.submit(sheet.job("last"))
    crew.stop()
    assert isinstance(sheet.results[2], RequestError)
    assert (worked, crew.waiting) == ([], 0)
