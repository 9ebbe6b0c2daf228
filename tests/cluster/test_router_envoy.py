"""The rendered files in the real Envoy, with real HTTP servers behind it: what the router promises to users."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
from headway_operator.router.intent import Backend, Intent
from headway_operator.router.podtemplate import ending
from headway_operator.router.render import render
from realrouter.stage import Load, Stage, intent, reached, stage

STABLE, CANARY = "aaaa1111", "bbbb2222"
WORKERS = 6  # clients under load; each has one request in flight


@pytest.fixture
async def router(tmp_path: Path) -> AsyncIterator[Stage]:
    async with stage(tmp_path) as made:
        yield made
        log = made.envoy.log.read_text()
        assert "Unknown field" not in log
        assert "Deprecated" not in log
        assert "rejected" not in log


async def both(router: Stage) -> None:
    """One pod of the stable, one of the candidate."""
    await asyncio.gather(router.pods.start("sentiment", STABLE), router.pods.start("sentiment", CANARY))


def split(stable: int) -> Intent:
    """The stable gets `stable` per cent, the candidate the rest."""
    return intent("sentiment", {STABLE: stable, CANARY: 100 - stable}, stable=STABLE, canary=CANARY)


async def test_ten_per_cent_are_ten_per_cent(router: Stage) -> None:
    await both(router)
    await router.settle(split(90))
    answered = await router.split(4_000)
    # 400 expected, standard deviation 19: 2 % of 4,000 is more than 4 of them
    assert 320 <= answered[CANARY] <= 480
    assert answered.total() == 4_000


async def test_weights_change_under_load_and_no_request_fails(router: Stage) -> None:
    await both(router)
    await router.settle(split(100))
    async with router.load() as load:
        for stable in (95, 50, 10, 0, 30, 100, 60):
            await router.settle(split(stable))
            await asyncio.sleep(0.2)
        await reached(lambda: min(load.revisions[STABLE], load.revisions[CANARY]) > 100, "answers of both")
    assert load.failures == []


async def test_a_revision_comes_takes_over_and_the_old_one_leaves_under_load(router: Stage) -> None:
    old = await router.pods.start("sentiment", STABLE)
    await router.settle(intent("sentiment", {STABLE: 100}, stable=STABLE))
    async with router.load() as load:
        await reached(lambda: load.revisions[STABLE] > 50, "answers of the old one")
        pod = asyncio.create_task(router.pods.start("sentiment", CANARY))
        await router.settle(split(0))
        await pod
        alone = intent("sentiment", {CANARY: 100}, stable=CANARY)
        await router.settle(alone)
        outcome = await router.step({"sentiment": alone}, later=60)
        assert f"sentiment/{STABLE}" not in outcome.published.clusters
        router.publish(outcome.published)
        await router.settle(alone)
        await asyncio.sleep(0.2)
        await old.end()
        ended = load.revisions[CANARY]
        await reached(lambda: load.revisions[CANARY] > ended + 50, "answers of the new one")
    assert load.failures == []


async def test_a_changed_limit_replaces_the_cluster_under_load_and_no_request_fails(router: Stage) -> None:
    await both(router)
    await router.settle(split(50))
    async with router.load() as load:
        for limit in (300, 400, 200):
            backends = (Backend(STABLE, limit), Backend(CANARY, limit))
            await router.settle(replace(split(50), backends=backends))
            await asyncio.sleep(0.3)
    assert load.failures == []


async def test_a_killed_candidate_costs_no_request_but_those_it_was_working_on(router: Stage) -> None:
    await router.pods.start("sentiment", STABLE)
    candidate = await router.pods.start("sentiment", CANARY)
    await router.settle(split(50))
    async with router.load(workers=WORKERS) as load:
        await reached(lambda: load.revisions[CANARY] > 50, "answers of the candidate")
        await candidate.end(signal.SIGKILL)
        before = load.total
        await asyncio.sleep(2.5)
        await reached(lambda: load.total > before + 300, "answers without it")
    assert_only_interrupted(load)


async def test_a_killed_stable_is_covered_by_a_candidate_that_carries_traffic(router: Stage) -> None:
    stable = await router.pods.start("sentiment", STABLE)
    await router.pods.start("sentiment", CANARY)
    await router.settle(split(90))
    async with router.load(workers=WORKERS) as load:
        await stable.end(signal.SIGKILL)
        await asyncio.sleep(2)
    assert_only_interrupted(load)


async def test_a_pod_that_drains_before_it_ends_costs_no_request(router: Stage) -> None:
    leaving, _ = await asyncio.gather(
        router.pods.start("sentiment", STABLE),
        router.pods.start("sentiment", STABLE),
    )
    await router.settle(intent("sentiment", {STABLE: 100}, stable=STABLE))
    async with router.load(workers=WORKERS) as load:
        await asyncio.sleep(0.5)
        leaving.process.send_signal(signal.SIGUSR1)
        await asyncio.sleep(2)
        await leaving.end(signal.SIGTERM)
        await asyncio.sleep(0.5)
    assert load.failures == []


async def test_one_healthy_pod_of_two_keeps_the_whole_weight_of_its_revision(router: Stage) -> None:
    first, _ = await asyncio.gather(
        router.pods.start("sentiment", STABLE),
        router.pods.start("sentiment", STABLE),
    )
    await router.pods.start("sentiment", CANARY)
    await router.settle(split(90))
    await first.end()
    await router.healthy(f"sentiment/{STABLE}", 1)
    answered = await router.split(2_000)
    assert answered[CANARY] <= 300, "traffic of the stable leaks to the candidate"


async def test_a_model_without_a_ready_revision_answers_503_and_says_so(router: Stage) -> None:
    await router.settle(intent("sentiment", {}))
    status, headers, body = await router.ask()
    assert (status, json.loads(body)["reason"]) == (503, "NoReadyRevision")
    assert headers["content-type"] == "application/json"
    assert headers["x-headway-not-admitted"] == "1"


async def test_a_revision_gets_no_weight_before_a_pod_of_it_is_healthy(router: Stage) -> None:
    wanted = intent("sentiment", {STABLE: 100}, stable=STABLE)
    with pytest.raises(AssertionError, match="no healthy pod"):
        await router.settle(wanted, seconds=2)
    assert router.published.routes["sentiment"].weights == {}
    await router.pods.start("sentiment", STABLE)
    await router.settle(wanted)
    assert (await router.ask())[0] == 200


async def test_a_pod_that_answers_as_another_revision_gets_no_traffic(router: Stage) -> None:
    await router.pods.start("sentiment", STABLE, answers_as=CANARY)
    with pytest.raises(AssertionError, match="no healthy pod"):
        await router.settle(intent("sentiment", {STABLE: 100}, stable=STABLE), seconds=3)


async def test_header_and_path_pin_a_revision_and_unknown_ones_are_refused(router: Stage) -> None:
    await both(router)
    await router.settle(split(100))
    for pin in ("canary", CANARY):
        assert (await router.ask(x_headway_revision=pin))[1]["x-headway-revision"] == CANARY
    for pin in ("stable", STABLE):
        assert (await router.ask(x_headway_revision=pin))[1]["x-headway-revision"] == STABLE
    path = f"/v2/models/sentiment/versions/{CANARY}/infer"
    for host in ("sentiment", "router.example"):
        assert (await router.ask(host, path))[1]["x-headway-revision"] == CANARY
    unknown = [
        await router.ask(x_headway_revision="cccc3333"),
        await router.ask(path="/v2/models/sentiment/versions/cccc3333/infer"),
    ]
    assert [(status, json.loads(body)["reason"]) for status, _, body in unknown] == [(404, "UnknownRevision")] * 2


async def test_a_model_is_found_by_each_of_its_hosts_and_by_path(router: Stage) -> None:
    await router.pods.start("sentiment", STABLE)
    await router.settle(intent("sentiment", {STABLE: 100}, stable=STABLE), intent("other", {}))
    for host in ("sentiment", "sentiment.prod", "sentiment.prod.svc:80", "sentiment.prod.svc.cluster.local:8080"):
        assert (await router.ask(host, "/v1/anything"))[0] == 200
    assert (await router.ask("elsewhere.example", "/v2/models/sentiment/infer"))[0] == 200
    assert (await router.ask("elsewhere.example", "/v2/models/sentimental/infer"))[0] == 404
    status, headers, body = await router.ask("elsewhere.example", "/v1/anything")
    assert (status, json.loads(body)["reason"]) == (404, "UnknownModel")
    assert headers["content-type"] == "application/json"


async def test_paths_that_name_no_model_are_found_below_its_name_by_weight_alone(router: Stage) -> None:
    await both(router)
    await router.settle(split(100))
    status, _, body = await router.ask("elsewhere.example", "/models/sentiment/v1/chat/completions")
    answer = json.loads(body)
    assert (status, answer["revision"], answer["path"]) == (200, STABLE, "/v1/chat/completions")
    for path in ("/models/sentiment/v2/models", "/models/sentimental/v1/models", "/models/sentiment/v1x"):
        assert (await router.ask("elsewhere.example", path))[0] == 404
    status, _, body = await router.ask("elsewhere.example", "/models/sentiment/v1/models", x_headway_revision="canary")
    assert (status, json.loads(body)["reason"]) == (404, "UnknownRevision")


async def test_a_request_that_was_not_admitted_goes_to_another_pod(router: Stage) -> None:
    await both(router)
    await router.settle(split(50))
    for _ in range(10):
        status, headers, body = await router.ask(body=b"x" * 1000, x_test_refuse=CANARY)
        assert (status, headers["x-headway-revision"], json.loads(body)["bytes"]) == (200, STABLE, 1000)


async def test_a_request_that_reached_a_model_is_never_repeated(router: Stage) -> None:
    await both(router)
    await router.settle(split(50))
    asked = {"x_test_id": "once", "x_test_status": "503", "x_envoy_retry_on": "5xx", "x_envoy_max_retries": "3"}
    assert (await router.ask(**asked))[0] == 503
    assert await seen(router, "once") == 1
    status, headers, body = await router.ask(x_headway_revision=CANARY, x_test_id="fatal", x_test_die="yes")
    assert (status, headers["content-type"]) == (503, "application/json")
    assert "connection_termination" in json.loads(body)["reason"]
    assert "x-headway-not-admitted" not in headers
    assert await seen(router, "fatal") == 0


async def test_errors_that_pods_answer_eject_nobody(router: Stage) -> None:
    await router.pods.start("sentiment", STABLE)
    await router.settle(intent("sentiment", {STABLE: 100}, stable=STABLE))
    for status in ("503", "500", "429", "504") * 10:
        assert (await router.ask(x_test_status=status))[0] == int(status)
    assert (await router.ask())[0] == 200


async def test_http2_without_tls_is_served_on_the_same_port(router: Stage) -> None:
    await router.settle(intent("sentiment", {}))
    reader, writer = await asyncio.open_connection("127.0.0.1", router.site.port)
    empty_settings = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
    writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + empty_settings)
    frame = await asyncio.wait_for(reader.readexactly(9), 60)
    assert frame[3] == 4, "the answer to an HTTP/2 preface is a SETTINGS frame"
    writer.close()
    await writer.wait_closed()


async def test_a_router_that_ends_loses_nothing(router: Stage) -> None:
    await router.pods.start("sentiment", STABLE)
    await router.settle(intent("sentiment", {STABLE: 100}, stable=STABLE))
    slow = asyncio.create_task(router.ask(x_test_seconds="6"))
    async with router.load() as load:
        await asyncio.sleep(0.5)
        hook = await asyncio.create_subprocess_exec("bash", "-c", ending(router.site.admin_port, linger=1))
        while await router.envoy.ready():
            assert hook.returncode is None, "the pod must leave its Service while it still serves"
            await asyncio.sleep(0.05)
        _, headers, _ = await router.ask()
        assert headers["connection"] == "close", "clients must look for another router"
        assert hook.returncode is None
    assert await asyncio.wait_for(hook.wait(), 60) == 0
    assert slow.done(), "the hook waits for requests in flight"
    await router.envoy.stop()
    assert (await slow)[0] == 200
    assert load.failures == []


async def test_the_readout_listener_gives_three_paths_and_takes_nothing(router: Stage) -> None:
    for path in ("/ready", "/readout", "/stats/prometheus"):
        assert (await router.envoy.get(path))[0] == 200
    for path in ("/", "/stats", "/config_dump", "/clusters", "/quitquitquit", "/ready/x", "/ready/../quitquitquit"):
        assert (await router.envoy.get(path))[0] == 404
    assert "downstream_cx" not in (await router.envoy.get("/readout?filter=downstream_cx"))[1]
    url = f"http://127.0.0.1:{router.site.readout_port}/ready"
    async with aiohttp.request("POST", url) as response:
        assert response.status == 404


async def test_a_refused_file_is_counted_and_what_was_served_goes_on(router: Stage) -> None:
    await router.pods.start("sentiment", STABLE)
    await router.settle(intent("sentiment", {STABLE: 100}, stable=STABLE))
    before = await router.envoy.acknowledged()
    data = render(router.published, router.site).data()
    broken = data["routes.yaml"].replace(before.routes, "broken").replace('"match"', '"mismatch"')
    router.envoy.mount({**data, "routes.yaml": broken})

    async def refused() -> bool:
        return (await router.envoy.acknowledged()).rejections > before.rejections

    await reached(refused, "a refusal")
    after = await router.envoy.acknowledged()
    assert (after.rejections, after.routes) == (before.rejections + 1, before.routes)
    assert (await router.ask())[0] == 200
    router.envoy.log.write_text("")


def assert_only_interrupted(load: Load) -> None:
    """At most one request per client was in the killed pod's hands; those are not repeated, all others are answered.
    Envoy may have had the head of an answer, and has passed it on, or nothing of it.
    """
    assert len(load.failures) <= WORKERS, load.failures[:10]
    cut = ("connection_termination", "Not enough data to satisfy content length header")
    assert all(any(how in failure for how in cut) for failure in load.failures), load.failures


async def seen(router: Stage, request: str) -> int:
    """How many times the pods that still run admitted this request."""
    count = 0
    for pod in router.pods.running:
        if pod.process.returncode is None:
            try:
                async with aiohttp.request("GET", f"http://{pod.address}:{router.site.backend_port}/seen") as response:
                    count += (await response.json()).get(request, 0)
            except aiohttp.ClientConnectionError:
                continue
    return count
