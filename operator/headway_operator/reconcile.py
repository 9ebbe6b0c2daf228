"""One pass for one ModelDeployment:

    observe (I/O) -> plan (pure) -> desired (pure) -> apply + prune (I/O) -> status (pure) -> write status (I/O)

Every pass starts from what is, so that one may be lost, repeated or cut off after any write. Records of revisions are
written before what is rendered from them; nothing is written that is already so; the weights go to the router's own
pass. A pass that wrote anything is followed by another one, which writes nothing when all is well.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from headway_operator import errors
from headway_operator.apply import Applier
from headway_operator.cluster import Cluster
from headway_operator.compare import Settled
from headway_operator.desired import desired_objects, prunable
from headway_operator.events import LONGEST_NOTE, Recorder
from headway_operator.kinds import MODEL_DEPLOYMENT, POD
from headway_operator.nudges import Nudges
from headway_operator.observe import Look, Observer
from headway_operator.observed import Object, Plan
from headway_operator.obstacles import Obstacles
from headway_operator.plan import plan, route_intent
from headway_operator.reports import Reports
from headway_operator.router.intent import Intent
from headway_operator.status import Event, events, readable, status
from headway_operator.store import Owner, Store

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a pass ended."""

    wrote: bool
    again: float | None  # seconds until the next look; None: when something happens


class Reconciler:
    """The passes of all ModelDeployments.

    `publish(namespace, intent)` hands weights to the router's pass, `withdraw(namespace, model)` takes them back.
    """

    def __init__(
        self,
        *,
        cluster: Cluster,
        store: Store,
        observer: Observer,
        reports: Reports,
        obstacles: Obstacles,
        recorder: Recorder,
        publish: Callable[[str, Intent], None],
        withdraw: Callable[[str, str], None],
        clock: Callable[[], float],
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._observer = observer
        self._reports = reports
        self._obstacles = obstacles
        self._recorder = recorder
        self._publish = publish
        self._withdraw = withdraw
        self._clock = clock
        self._applier = Applier(cluster=cluster, store=store, obstacles=obstacles)
        self._nudges = Nudges(cluster, clock)
        self._settled_status = Settled()
        self._uids: dict[Owner, str] = {}

    async def handle(self, owner: Owner) -> float | None:
        """A pass, and another one at once after one that wrote; returns the seconds until the next."""
        outcome = await self.reconcile(owner)
        return 0.0 if outcome.wrote else outcome.again

    async def reconcile(self, owner: Owner) -> Outcome:
        """Bring one ModelDeployment closer to what it says. Raises ClusterError when that has to be tried again."""
        md = self._store.get(MODEL_DEPLOYMENT, owner.namespace, owner.name)
        if md is None or "deletionTimestamp" in md["metadata"]:
            self._forget(owner)
            return Outcome(wrote=False, again=None)
        try:
            return await self._pass(owner, md)
        except errors.RejectedError as error:
            noted = self._obstacles.refusal(owner, md)
            if noted is None or error.words not in noted.message:  # otherwise the next pass tells it, in the status
                await self._recorder.record(md, Event("Warning", "Refused", error.words[:LONGEST_NOTE]))
            raise
        except errors.PredecessorError:
            if self._obstacles.refusal(owner, md) is None:
                raise
            return Outcome(wrote=True, again=None)  # the next pass tells it
        except errors.NamespaceTerminatingError:
            self._obstacles.met_end_of_namespace(owner, md)
            _log.info("namespace_ends", extra={"namespace": owner.namespace, "model": owner.name})
            return Outcome(wrote=False, again=None)

    async def _pass(self, owner: Owner, md: Object) -> Outcome:
        if self._uids.get(owner, md["metadata"]["uid"]) != md["metadata"]["uid"]:
            self._forget(owner)  # deleted and made anew before anybody looked: nothing of the old one is true of it
        self._uids[owner] = md["metadata"]["uid"]
        look = await self._observer.observe(owner, md)
        observed, now = look.observed, self._clock()
        decided = plan(observed, now)
        wrote, nudge_again = False, None
        if not decided.hands_off and not observed.namespace_terminating:
            wrote = await self._applier.apply(
                owner, md, desired_objects(observed, decided), prunable=partial(prunable, plan=decided)
            )
            nudge_again = await self._nudge(owner)
            if (intent := route_intent(observed, decided)) is not None:
                self._publish(owner.namespace, intent)
        wrote |= await self._write_status(owner, md, status(observed, decided, now))
        return Outcome(wrote=wrote, again=_soonest(decided, look, nudge_again))

    async def _nudge(self, owner: Owner) -> float | None:
        """Make the pods look at the knobs that the API server now has for them."""
        if (content := self._observer.wanted_knobs(owner)) is None:
            return None
        reports = [(pod, self._reports.of(owner, pod)) for pod in self._store.owned(owner, POD)]
        late = [
            pod
            for pod, report in reports
            if report and report.knobs.hash != content and "deletionTimestamp" not in pod["metadata"]
        ]
        nudged, again = await self._nudges.give(owner, late, content)
        for pod in nudged:
            self._store.put(pod)
        return again

    async def _write_status(self, owner: Owner, md: Object, wanted: Object) -> bool:
        """Write the status if it says something else than the one that is there, and tell the user of transitions."""
        before, uid = md.get("status") or {}, md["metadata"]["uid"]
        if before == wanted or self._settled_status.is_known(uid, wanted, before):
            return False
        written = await self._cluster.write_status(md, wanted)
        self._settled_status.came_back(uid, wanted, written.get("status") or {})
        self._store.put(written)
        for event in events(readable(before), wanted):
            await self._recorder.record(md, event)
        return True

    def _forget(self, owner: Owner) -> None:
        self._reports.forget(owner)
        self._obstacles.forget(owner)
        self._applier.forget(owner)
        self._nudges.forget(owner)
        if (uid := self._uids.pop(owner, None)) is not None:
            self._recorder.forget(uid)
            self._settled_status.forget(uid)
        self._withdraw(owner.namespace, owner.name)


def _soonest(decided: Plan, look: Look, nudge_again: float | None) -> float | None:
    """Seconds until the first moment at which something may differ without an event."""
    return min((pause for pause in (decided.look_again, look.again, nudge_again) if pause is not None), default=None)
