"""The router pass of a namespace: take the intents of its models, publish what may be published, read what is obeyed.

    publish(namespace, intent)    a ModelDeployment's pass says what it wants; wakes the router's key if that is new
    reconcile(namespace)          one pass; returns the seconds until the next
    route_state(namespace, model) what every serving router acknowledged; a change wakes the ModelDeployment's key

What is published survives the operator in the router's ConfigMap: models whose pass has not run since a restart keep
the intent that is written there. At rest a pass writes nothing and asks nobody.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from headway_api import names

from headway_operator import errors
from headway_operator.cluster import Cluster
from headway_operator.kinds import CHILDREN, CONFIG_MAP, MODEL_DEPLOYMENT, POD
from headway_operator.nudges import Nudges
from headway_operator.observed import RouteState
from headway_operator.pods import parse_pod
from headway_operator.router.acks import Acks, obeys, router_pods
from headway_operator.router.intent import Intent
from headway_operator.router.objects import NAMES, objects, pinned, stored
from headway_operator.router.podtemplate import Image
from headway_operator.router.render import Ack, Files, Published, Site, Step, render, step
from headway_operator.router.render.published import plain
from headway_operator.router.states import route_states
from headway_operator.router.writing import Writer
from headway_operator.store import Owner, Store

_log = logging.getLogger(__name__)

ABANDONED_SECONDS = 300.0  # a namespace without a ModelDeployment keeps its router for this long
FOREIGN_SECONDS = 30.0  # until an object of another owner, which has the router's name, is looked at again
_PACE = ((15, 0.2), (75, 1.0))  # (looks without news, seconds until the next)
_SLOW = 5.0


@dataclass(slots=True)
class _Space:
    """What the operator knows of one namespace's router."""

    site: Site
    published: Published | None = None  # None until the first pass
    submitted: dict[str, Intent] = field(default_factory=dict)
    withdrawn: set[str] = field(default_factory=set)  # models whose written intent is another ModelDeployment's
    states: dict[str, RouteState] = field(default_factory=dict)
    restless: bool = True  # something is in flight
    empty_since: float | None = None
    reachable: dict[str, frozenset[str]] = field(default_factory=dict)  # model -> its clusters that have a ready pod
    looks: int = 0  # without news
    rendered: tuple[Published, Files] | None = None  # the last one: 200 models take a second to write

    def files(self, published: Published) -> Files:
        """The files for what is published."""
        if self.rendered is None or not _same(self.rendered[0], published):
            self.rendered = published, render(published, self.site)
        return self.rendered[1]


class RouterReconciler:
    """The router passes of all namespaces. `wake` puts a key into the queue; `clock` gives seconds since the epoch."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        store: Store,
        image: Image,
        wake: Callable[[Owner], None],
        clock: Callable[[], float],
        cluster_domain: str = "cluster.local",
        site: Site | None = None,
    ) -> None:
        """`site`: ports and directory, where they are not the usual ones."""
        self._store = store
        self._image = image
        self._wake = wake
        self._clock = clock
        self._site = site or Site("", cluster_domain)
        self._acks = Acks()
        self._nudges = Nudges(cluster, clock)
        self._writer = Writer(cluster, store)
        self._spaces: dict[str, _Space] = {}

    async def close(self) -> None:
        """Close the connections to the routers."""
        await self._acks.close()

    def publish(self, namespace: str, intent: Intent) -> None:
        """Take the newest intent of a model. Never fails, never waits."""
        space = self._space(namespace)
        space.submitted[intent.model] = intent
        space.withdrawn.discard(intent.model)
        new = space.published is None or space.published.intents.get(intent.model) != intent
        if new:
            state = space.states.get(intent.model, RouteState(known=False))
            space.states[intent.model] = replace(state, pending=True)
            space.looks = 0
        if new or space.restless or space.reachable.get(intent.model) != self._reachable(namespace, intent.model):
            self._wake(_owner(namespace))

    def withdraw(self, namespace: str, model: str) -> None:
        """The ModelDeployment is gone: so is its route."""
        if (space := self._spaces.get(namespace)) is None:
            return
        space.submitted.pop(model, None)
        space.states.pop(model, None)
        space.withdrawn.add(model)
        self._wake(_owner(namespace))

    def route_state(self, namespace: str, model: str) -> RouteState:
        """What the routers acknowledged for a model."""
        space = self._spaces.get(namespace)
        return RouteState(known=False) if space is None else space.states.get(model, RouteState(known=False))

    async def reconcile(self, namespace: str) -> float | None:
        """One pass. Returns the seconds until the next; None: only an event can change anything.

        Raises ClusterError when the API server does.
        """
        space, owner = self._space(namespace), _owner(namespace)
        models = {md["metadata"]["name"] for md in self._store.all(MODEL_DEPLOYMENT, namespace)}
        left = None
        if models:
            space.empty_since = None
        elif (left := await self._abandon(space, owner)) is None:
            return None
        space.restless = True  # what is published from here on wakes the key again
        try:
            again = await self._pass(space, owner, models)
        except errors.NamespaceTerminatingError:
            self._forget(namespace)
            return None
        except errors.ForeignObjectError as error:
            _log.warning("name_conflict", extra={"namespace": namespace, "object": error.reference})
            self._tell_rejected(namespace, models, str(error))
            return FOREIGN_SECONDS
        except errors.RejectedError as error:
            self._tell_rejected(namespace, models, f"the API server refuses it: {error.words}")
            raise
        return min((pause for pause in (again, left) if pause is not None), default=None)

    async def _pass(self, space: _Space, owner: Owner, models: set[str]) -> float | None:
        live = self._store.get(CONFIG_MAP, owner.namespace, names.ROUTER_NAME)
        written = stored(live)
        published = space.published or written or Published()
        wanted = _wanted(space, published, models)
        space.reachable = {model: self._reachable(owner.namespace, model) for model in wanted}
        reachable = frozenset[str]().union(*space.reachable.values())
        pods = router_pods(self._store.owned(owner, POD))
        files = space.files(published)

        acks = self._acks.remembered(owner.namespace, pods)
        outcome = self._step(published, wanted, acks=acks or [], reachable=reachable, files=files)
        if acks is None or not _at_rest(published, outcome, acks, files):
            acks = await self._acks.read(owner.namespace, pods, space.site.readout_port)
            outcome = self._step(published, wanted, acks=acks, reachable=reachable, files=files)

        following = outcome.published
        changed = not published.same_files(following)
        now_files = space.files(following)
        # In memory before it is written, as the ConfigMap with the state is written before the one with the clusters.
        space.published = following
        kept = written if written is not None and _same(written, following) else following
        pin = pinned(live, space.site, self._image)
        await self._writer.write(objects(space.site, kept, now_files, pin))
        late = {ack.router for ack in acks if not obeys(ack, now_files)}
        nudged, _ = await self._nudges.give(owner, [pod.live for pod in pods if pod.name in late], now_files.digest)
        for obj in nudged:
            self._store.put(obj)

        refusing = self._acks.refusing(owner.namespace, pods, files)
        states = route_states(
            space.states,
            wanted,
            published=published,
            outcome=outcome,
            routers=len(acks),
            known=self._acks.remembered(owner.namespace, pods) is not None,
            rejected=_refusal(owner.namespace, refusing),
            now=self._clock(),
        )
        for model, intent in space.submitted.items():  # published while this pass was waiting for answers
            if model in states and wanted[model] != intent:
                states[model] = replace(states[model], pending=True)
        news = self._tell(owner.namespace, states)
        space.looks = 0 if news or changed else space.looks + 1
        space.restless = changed or not _at_rest(following, outcome, acks, now_files)
        if changed:
            serials = {"clusters": following.clusters_serial, "routes": following.routes_serial}
            _log.info("router_published", extra={"namespace": owner.namespace, **serials, "waits": list(outcome.waits)})
        return self._again(space, outcome, asked=bool(pods))

    def _step(
        self,
        published: Published,
        wanted: Mapping[str, Intent],
        *,
        acks: list[Ack],
        reachable: frozenset[str],
        files: Files,
    ) -> Step:
        return step(
            published,
            wanted,
            acks=acks,
            reachable=reachable,
            clusters_version=files.clusters.version,
            routes_version=files.routes.version,
            now=self._clock(),
        )

    def _again(self, space: _Space, outcome: Step, *, asked: bool) -> float | None:
        """Seconds until the next look. Pods that are not there yet wake the pass by their events."""
        if not space.restless:
            space.looks = 0
            return None
        pace = next((pause for limit, pause in _PACE if space.looks < limit), _SLOW)
        drain = None if outcome.drain_ends is None else max(0.1, outcome.drain_ends - self._clock())
        waiting = bool(outcome.waits or outcome.unhealthy) or not outcome.routes_acknowledged
        if drain is not None and not waiting and outcome.clusters_acknowledged:
            return drain
        return pace if asked else drain

    def _reachable(self, namespace: str, model: str) -> frozenset[str]:
        """The plain clusters of a model that have a ready pod."""
        pods = (parse_pod(live, None) for live in self._store.owned(Owner("md", namespace, model), POD))
        return frozenset(plain(model, pod.revision) for pod in pods if pod.ready and not pod.terminating)

    def _tell(self, namespace: str, states: Mapping[str, RouteState]) -> bool:
        """Keep the states and wake the models whose state changed; whether there were any."""
        space = self._space(namespace)
        kept = {model: state for model, state in states.items() if model not in space.withdrawn}
        news = {model for model, state in kept.items() if space.states.get(model) != state}
        space.states = kept
        for model in sorted(news):
            self._wake(Owner("md", namespace, model))
        return bool(news)

    def _tell_rejected(self, namespace: str, models: set[str], words: str) -> None:
        self._tell(namespace, {m: replace(self.route_state(namespace, m), rejected=words) for m in models})

    async def _abandon(self, space: _Space, owner: Owner) -> float | None:
        """Seconds that a router without models still has; None when it is gone, after deleting it if its time is up."""
        labelled = (obj for kind in reversed(CHILDREN) for obj in self._store.owned(owner, kind))
        own = [obj for obj in labelled if obj["metadata"]["name"] in NAMES]  # labels are soon copied by hand
        if own:
            space.empty_since = self._clock() if space.empty_since is None else space.empty_since
            if (left := space.empty_since + ABANDONED_SECONDS - self._clock()) > 0:
                return left
            _log.info("router_deleted", extra={"namespace": owner.namespace})
        for obj in own:
            await self._writer.delete(obj)
        self._forget(owner.namespace)
        return None

    def _forget(self, namespace: str) -> None:
        self._spaces.pop(namespace, None)
        self._acks.forget(namespace)
        self._nudges.forget(_owner(namespace))

    def _space(self, namespace: str) -> _Space:
        return self._spaces.setdefault(namespace, _Space(replace(self._site, namespace=namespace)))


def _owner(namespace: str) -> Owner:
    return Owner("router", namespace)


def _wanted(space: _Space, published: Published, models: set[str]) -> dict[str, Intent]:
    """The newest intent of every model that there is; of one whose pass has not run yet, the one that is written."""
    written = {model: intent for model, intent in published.intents.items() if model not in space.withdrawn}
    return {model: intent for model, intent in {**written, **space.submitted}.items() if model in models}


def _at_rest(published: Published, outcome: Step, acks: list[Ack], files: Files) -> bool:
    """Whether everything that is wanted is published, acknowledged and healthy, and nothing drains."""
    waits = outcome.waits or outcome.unhealthy or outcome.drain_ends is not None
    acknowledged = bool(acks) and all(obeys(ack, files) for ack in acks)
    return published.same_files(outcome.published) and acknowledged and not waits


def _same(written: Published, following: Published) -> bool:
    serials = (written.clusters_serial, written.routes_serial) == (following.clusters_serial, following.routes_serial)
    return serials and written.same_files(following)


def _refusal(namespace: str, pods: list[str]) -> str | None:
    if not pods:
        return None
    return f"Envoy in {', '.join(pods)} refused a file; it says why in: kubectl logs -n {namespace} {pods[0]}"
