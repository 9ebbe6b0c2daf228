"""Reading what router pods obey, and remembering it: a router at rest is not asked again.

A pod counts when it serves. A Ready one counts even when it does not answer: then it has acknowledged nothing, and
clients may still reach it. One that is not Ready counts as long as it answers (it drains, or is about to be Ready);
otherwise one dead node would hold up every change.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

import aiohttp

from headway_operator.observed import Object
from headway_operator.pods import is_live, parse_pod
from headway_operator.router.readout import parse
from headway_operator.router.render import Ack, Files
from headway_operator.router.render.listeners import READOUT_PATH

_log = logging.getLogger(__name__)

READERS = 50  # routers read at the same time, over all namespaces
TIMEOUT = aiohttp.ClientTimeout(total=2.0)  # seconds for one of them


@dataclass(frozen=True, slots=True)
class RouterPod:
    """A router pod that can be asked."""

    name: str
    uid: str
    restarts: int
    address: str
    ready: bool  # and not on its way out
    live: Object  # as the store has it


@dataclass(frozen=True, slots=True)
class _Known:
    restarts: int
    ack: Ack
    rejections: int = 0  # when it last obeyed everything that was published


def router_pods(pods: Sequence[Object]) -> tuple[RouterPod, ...]:
    """The pods with an address, from their JSON."""
    return tuple(
        RouterPod(pod.name, pod.uid, pod.restarts, pod.ip, pod.ready and not pod.terminating, live)
        for live in pods
        if is_live(live) and (pod := parse_pod(live, None)).ip
    )


def obeys(ack: Ack, files: Files) -> bool:
    """Whether the router runs all three files as they are published."""
    published = (files.listeners.version, files.clusters.version, files.routes.version)
    return (ack.listeners, ack.clusters, ack.routes) == published and ack.warming == 0


class Acks:
    """The newest acknowledgement of every router pod, by namespace and UID."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, _Known]] = {}
        self._session: aiohttp.ClientSession | None = None
        self._readers = asyncio.Semaphore(READERS)

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    def forget(self, namespace: str) -> None:
        """The namespace has no router any more."""
        self._known.pop(namespace, None)

    def remembered(self, namespace: str, pods: Sequence[RouterPod]) -> list[Ack] | None:
        """What the Ready pods said last; None when one of them was never heard since its last restart."""
        known = self._known.get(namespace, {})
        found = [known.get(pod.uid) for pod in pods if pod.ready]
        ready = [pod for pod in pods if pod.ready]
        if any(each is None or each.restarts != pod.restarts for each, pod in zip(found, ready, strict=True)):
            return None
        return [each.ack for each in found if each is not None]

    async def read(self, namespace: str, pods: Sequence[RouterPod], port: int) -> list[Ack]:
        """Ask all of them now; one entry per serving router, without versions where a Ready one did not answer."""
        answers = await asyncio.gather(*(self._ask(pod, port) for pod in pods))
        before, known = self._known.get(namespace, {}), {}
        for pod, ack in zip(pods, answers, strict=True):
            last = before.get(pod.uid)
            same = last is not None and last.restarts == pod.restarts
            if ack is not None:
                known[pod.uid] = _Known(pod.restarts, ack, last.rejections if last is not None and same else 0)
            elif last is not None and same:
                known[pod.uid] = _Known(pod.restarts, Ack(pod.name), last.rejections)
        self._known[namespace] = known
        return [ack or Ack(pod.name) for pod, ack in zip(pods, answers, strict=True) if ack is not None or pod.ready]

    def refusing(self, namespace: str, pods: Sequence[RouterPod], files: Files) -> list[str]:
        """Names of the pods that refused a file since they last obeyed everything. `files` is what they should obey."""
        known, refused = self._known.get(namespace, {}), []
        for pod in pods:
            if (last := known.get(pod.uid)) is None:
                continue
            if obeys(last.ack, files):
                known[pod.uid] = _Known(last.restarts, last.ack, last.ack.rejections)
            elif last.ack.rejections > last.rejections:
                refused.append(pod.name)
        return refused

    async def _ask(self, pod: RouterPod, port: int) -> Ack | None:
        host = f"[{pod.address}]" if ":" in pod.address else pod.address
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=0, force_close=True)
            self._session = aiohttp.ClientSession(connector=connector, timeout=TIMEOUT)
        try:
            async with (
                self._readers,
                self._session.get(f"http://{host}:{port}{READOUT_PATH}", allow_redirects=False) as response,
            ):
                response.raise_for_status()
                return parse(await response.read(), pod.name)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            _log.debug("router_not_read", extra={"pod": pod.name, "address": pod.address, "error": repr(error)})
            return None
