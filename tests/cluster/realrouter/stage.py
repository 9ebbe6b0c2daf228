"""A router with pods behind it, and the router pass in small: publish, read what is acknowledged, publish the next."""

import asyncio
import contextlib
import inspect
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
from headway_operator.router.intent import Backend, Intent
from headway_operator.router.render import Published, Site, Step, render, step
from headway_operator.router.render.published import plain

from realrouter.dns import Dns
from realrouter.envoy import Envoy
from realrouter.pods import Pods
from tests.ports import free_port

NAMESPACE = "prod"
PATIENCE = 60.0  # seconds: more than any machine needs


async def reached(found: Callable[[], Awaitable[bool]] | Callable[[], bool], what: str) -> None:
    """Wait until it is true. Fails after `PATIENCE`."""
    deadline = time.monotonic() + PATIENCE
    while not (await told if inspect.isawaitable(told := found()) else told):
        assert time.monotonic() < deadline, f"{what}: not in {PATIENCE} s"
        await asyncio.sleep(0.05)


def intent(model: str, weights: dict[str, int], **roles: str | None) -> Intent:
    """An intent for the revisions in `weights` (0 is a backend without traffic); roles: stable, canary."""
    carrying = {revision: weight for revision, weight in weights.items() if weight}
    backends = tuple(Backend(revision, 256) for revision in weights)
    return Intent(model, roles.get("stable"), roles.get("canary"), carrying, backends)


@dataclass(slots=True)
class Load:
    """Clients on keep-alive connections, one request after the other, until stopped. What they got is counted."""

    revisions: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        """Requests that ended."""
        return self.revisions.total() + len(self.failures)


@dataclass(slots=True)
class Stage:
    """All of it."""

    site: Site
    envoy: Envoy
    pods: Pods
    published: Published = field(default_factory=Published)
    history: list[Published] = field(default_factory=list)

    async def healthy(self, cluster: str, count: int) -> None:
        """Wait until the router takes so many pods of a cluster for healthy."""
        line = f'envoy_cluster_membership_healthy{{envoy_cluster_name="{cluster}"}} {count}'

        async def found() -> bool:
            return line in (await self.envoy.get("/stats/prometheus"))[1].splitlines()

        await reached(found, f"{count} healthy pods of {cluster}")

    async def settle(self, *wanted: Intent, seconds: float = PATIENCE) -> None:
        """Publish until the router obeys everything that is wanted. Drain times are not waited for."""
        by_model = {each.model: each for each in wanted}
        deadline = time.monotonic() + seconds
        while True:
            outcome = await self.step(by_model)
            acknowledged = outcome.clusters_acknowledged and outcome.routes_acknowledged
            settled = acknowledged and not outcome.waits and self.published.same_files(outcome.published)
            self.publish(outcome.published)
            if settled:
                return
            assert time.monotonic() < deadline, (outcome.waits, await self.envoy.get("/readout"))
            await asyncio.sleep(0.05)

    async def step(self, wanted: dict[str, Intent], *, later: float = 0) -> Step:
        """One decision of the router pass, `later` seconds ahead of the clock."""
        files = render(self.published, self.site)
        return step(
            self.published,
            wanted,
            acks=[await self.envoy.acknowledged()],
            reachable={plain(each.model, backend.revision) for each in wanted.values() for backend in each.backends},
            clusters_version=files.clusters.version,
            routes_version=files.routes.version,
            now=time.time() + later,
        )

    def publish(self, published: Published) -> None:
        """Write the files if they changed."""
        changed = not self.published.same_files(published)
        self.published = published
        if changed:
            self.history.append(published)
            self.envoy.mount(render(published, self.site).data())

    async def ask(
        self, host: str = "sentiment", path: str = "/v2/models/sentiment/infer", *, body: bytes = b"{}", **headers: str
    ) -> tuple[int, dict[str, str], str]:
        """POST once on a new connection: status, headers, body. Underscores in header names become dashes."""
        given = {"Host": host} | {name.replace("_", "-"): value for name, value in headers.items()}
        url = f"http://127.0.0.1:{self.site.port}{path}"
        async with aiohttp.request("POST", url, data=body, headers=given) as response:
            return response.status, {k.lower(): v for k, v in response.headers.items()}, await response.text()

    async def split(self, count: int, host: str = "sentiment") -> Counter[str]:
        """Send `count` requests; how many each revision answered."""
        load = Load()
        async with self._session() as session:
            for start in range(0, count, 16):
                await asyncio.gather(*(self._one(session, load, host) for _ in range(start, min(start + 16, count))))
        assert not load.failures, load.failures[:5]
        return load.revisions

    @contextlib.asynccontextmanager
    async def load(self, hosts: Iterable[str] = ("sentiment",), *, workers: int = 6) -> AsyncIterator[Load]:
        """Keep-alive traffic while the block runs."""
        load, stop = Load(), asyncio.Event()

        async def client(session: aiohttp.ClientSession, host: str) -> None:
            while not stop.is_set():
                await self._one(session, load, host)
                await asyncio.sleep(0.002)

        async with self._session() as session:
            tasks = [asyncio.create_task(client(session, host)) for host in hosts for _ in range(workers)]
            try:
                yield load
            finally:
                stop.set()
                await asyncio.gather(*tasks)

    async def _one(self, session: aiohttp.ClientSession, load: Load, host: str) -> None:
        url = f"http://127.0.0.1:{self.site.port}/v2/models/{host}/infer"
        try:
            async with session.post(url, data=b"{}", headers={"Host": host}) as response:
                text = await response.text()
                if response.status == 200:
                    load.revisions[response.headers["x-headway-revision"]] += 1
                else:
                    load.failures.append(f"{response.status} {text}")
        except aiohttp.ClientError as error:
            load.failures.append(repr(error))

    def _session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=64))


@contextlib.asynccontextmanager
async def stage(directory: Path) -> AsyncIterator[Stage]:
    """A running router that serves no model yet."""
    port, readout_port, admin_port, backend_port, grpc_port = (free_port() for _ in range(5))
    site = Site(
        NAMESPACE,
        directory=str(directory / "mounted"),
        port=port,
        readout_port=readout_port,
        admin_port=admin_port,
        backend_port=backend_port,
        grpc_port=grpc_port,
    )
    dns = Dns()
    envoy = Envoy(site, await dns.start(), directory / "envoy.log")
    made = Stage(site, envoy, Pods(site, dns))
    try:
        envoy.mount(render(made.published, site).data())
        await envoy.start()
        yield made
    finally:
        await envoy.stop()
        await made.pods.end_all()
        await dns.stop()
