"""A small world for the pure middle: an API server, nodes, pods and routers as state, and time that stands still.

Nothing here decides anything: `World.pass_` runs the real `plan`, `desired_objects` and `status` on what is, applies
the result object by object (and may crash after any of them), and checks on every write that it harms no traffic.
"""

import copy
from dataclasses import dataclass, field
from typing import Any

from headway_api import names
from headway_api.podconfig import GenerationReport, KnobsReport, Phase, Report, SandboxReport, Termination, knobs_hash
from headway_api.types import Spec
from headway_operator.compare import difference
from headway_operator.desired import desired_objects, prunable, record_of
from headway_operator.observed import Object, Observed, Plan, Pod, Resource, Role, RouteState, Workload
from headway_operator.plan import plan, route_intent
from headway_operator.plan.facts import pods_for
from headway_operator.status import events, readable, status

EPOCH = 1_800_000_000.0
DIGESTS = {f"s3://m/{name}": f"sha256:{name * 64}" for name in "abcd"}
BROKEN = "s3://m/broken"
OTHER_SIGNATURE = "s3://m/d"


@dataclass
class SimPod:
    """A pod: pending, then prepared, then ready; `failed` says why it never will be."""

    name: str
    revision: str
    uri: str
    stage: int = 0
    digest: str | None = None
    signer: str | None = None
    termination: Termination | None = None
    terminated: str = "prepare"  # the container that left it
    knobs: str | None = None
    readable: bool = True  # its report is in the operator's memory

    @property
    def ready(self) -> bool:
        return self.stage == 2


class CrashError(Exception):
    """The operator is killed."""


@dataclass
class World:
    """Everything there is. `spec` is JSON, as a user writes it."""

    spec: Object
    name: str = "sentiment"
    generation: int = 1
    annotations: dict[str, str] = field(default_factory=dict)
    status: Object = field(default_factory=dict)
    objects: dict[tuple[str, str], Object] = field(default_factory=dict)
    pods: list[SimPod] = field(default_factory=list)
    uris: dict[str, str] = field(default_factory=dict)  # revision -> what its pods fetch
    published: dict[str, int] | None = None
    routers: list[dict[str, int] | None] = field(default_factory=lambda: [None, None])
    confirmed: dict[str, int] | None = None
    now: float = EPOCH
    image: str = "runtime:1"
    signature: str | None = "same"
    generation_report: GenerationReport | None = None  # of every ready pod
    known: bool = True
    writes: int = 0
    passes: int = 0
    counter: int = 0
    events: list[Any] = field(default_factory=list)

    # What the user does

    def edit(self, **changes: Any) -> None:
        """Change fields of the spec; None removes one."""
        self.spec = {key: value for key, value in {**self.spec, **changes}.items() if value is not None}
        self.generation += 1

    def vandalize(self, index: int) -> None:
        """A child is deleted by hand."""
        if self.objects:
            del self.objects[sorted(self.objects)[index % len(self.objects)]]

    def scale(self, index: int, replicas: int) -> None:
        """A Deployment is scaled by hand."""
        if deployments := sorted(key for key in self.objects if key[0] == "Deployment"):
            self.objects[deployments[index % len(deployments)]]["spec"]["replicas"] = replicas

    # What the operator sees

    def observed(self, **changes: Any) -> Observed:
        """What observe() would gather."""
        resource = Resource(
            self.name,
            "prod",
            "uid-1",
            self.generation,
            self.annotations,
            Spec.model_validate(self.spec),
            None,
            readable(self.status),
        )
        records = [record_of(obj) for (kind, _), obj in self.objects.items() if kind == "ControllerRevision"]
        values: dict[str, Any] = {
            "resource": resource,
            "records": {record.name: record for record in records},
            "workloads": {name: Workload(name, n, self.ready(name)) for name, n in self.deployments().items()},
            "pods": tuple(self._pod(pod) for pod in self.pods),
            "route": self.route(),
            "default_image": self.image,
        }
        return Observed(**{**values, **changes})

    def _pod(self, pod: SimPod) -> Pod:
        report = None
        if pod.ready and pod.readable:
            signature = "other" if pod.uri == OTHER_SIGNATURE else self.signature
            report = Report(
                model=self.name,
                revision=pod.revision,
                phase=Phase.READY,
                knobs=KnobsReport(hash=pod.knobs, effective={"maxWait": "2ms"}),
                signature=signature,
                sandbox=SandboxReport(landlock=7, seccomp=True),
                generation=self.generation_report,
            )
        return Pod(
            name=pod.name,
            uid=pod.name,
            revision=pod.revision,
            ip="10.0.0.1",
            ready=pod.ready,
            terminating=False,
            termination=pod.termination,
            terminated=pod.terminated if pod.termination else None,
            digest=pod.digest,
            signer=pod.signer,
            container=pod.terminated if pod.termination else None,
            report=report,
        )

    def route(self) -> RouteState:
        """What the routers acknowledged: each one's own version must be the published one."""
        if not self.known:
            return RouteState(known=False)
        done = self.published is not None and all(router == self.published for router in self.routers)
        if done:
            self.confirmed = dict(self.published or {})
        return RouteState(
            weights=self.confirmed, routers=2, pending=not done, acknowledged_at=self.now if done else None
        )

    def deployments(self) -> dict[str, int]:
        """Revision -> replicas."""
        return {
            obj["metadata"]["labels"][names.LABEL_REVISION]: obj["spec"]["replicas"]
            for (kind, _), obj in self.objects.items()
            if kind == "Deployment"
        }

    def ready(self, revision: str) -> int:
        """Ready pods."""
        return sum(pod.ready for pod in self.pods if pod.revision == revision)

    def in_force(self, revision: str) -> int:
        """The most that any router may send to a revision: what it runs now."""
        return max((router or {}).get(revision, 0) for router in self.routers)

    # What the operator does

    def pass_(self, *, crash_after: int | None = None, **changes: Any) -> Plan:
        """One pass; `crash_after` kills the operator after that many writes."""
        self.passes += 1
        observed = self.observed(**changes)
        decided = plan(observed, self.now)
        assert decided == plan(observed, self.now)
        budget = [crash_after]
        desired = desired_objects(observed, decided)
        assert desired == desired_objects(observed, decided)
        self._check_plan(observed, decided)
        if not decided.hands_off:
            for obj in desired:
                self._apply(obj, budget)
            wanted = {(obj["kind"], obj["metadata"]["name"]) for obj in desired}
            for key in [key for key in self.objects if key not in wanted]:
                if prunable(self.objects[key], decided):
                    self._spend(budget)
                    self._check_removal(self.objects[key])
                    del self.objects[key]
            intent = route_intent(observed, decided)
            if intent is not None:
                self.published = dict(intent.weights)
        told = status(observed, decided, self.now)
        assert told == status(observed, decided, self.now)
        if told != self.status:
            self._spend(budget)
            self.events += events(observed.resource.status, told)
            self.status = copy.deepcopy(told)
        return decided

    def _spend(self, budget: list[int | None]) -> None:
        if budget[0] is not None:
            if budget[0] <= 0:
                raise CrashError
            budget[0] -= 1
        self.writes += 1

    def _apply(self, obj: Object, budget: list[int | None]) -> None:
        key = (obj["kind"], obj["metadata"]["name"])
        old = self.objects.get(key)
        if obj == old or (old and difference(obj, old) is None):  # as `Applier` sees it: what is only there is others'
            return
        self._spend(budget)
        if old and obj["kind"] == "Deployment":
            assert old["spec"]["template"] == obj["spec"]["template"], "a pod template changed"
            self._check_scale(obj["metadata"]["labels"][names.LABEL_REVISION], old, obj)
        if old and obj["kind"] == "ControllerRevision":
            assert old["data"] == obj["data"], "a record changed"
            pins = [each["metadata"].get("annotations", {}).get(names.ANNOTATION_DIGEST) for each in (old, obj)]
            assert pins[0] in (None, pins[1]), "a pin was written twice"
        self.objects[key] = copy.deepcopy(obj)
        if obj["kind"] == "ControllerRevision":
            self.uris[names.revision_of(key[1])] = obj["data"]["cold"]["artifact"]["uri"]

    def _check_scale(self, revision: str, old: Object, new: Object) -> None:
        """Pods may go only when no router sends anything that needs them."""
        needed = pods_for(self.spec.get("replicas", 1), self.in_force(revision)) if self.in_force(revision) else 0
        before, after = old["spec"]["replicas"], new["spec"]["replicas"]
        assert after >= min(before, needed), f"{revision} scaled from {before} to {after} while it carries traffic"

    def _check_removal(self, obj: Object) -> None:
        if obj["kind"] in ("Deployment", "Service"):
            revision = obj["metadata"]["labels"][names.LABEL_REVISION]
            assert not self.in_force(revision), f"{obj['kind']} of {revision} deleted while it carries traffic"

    def _check_plan(self, observed: Observed, decided: Plan) -> None:
        weights = {target.revision: target.weight for target in decided.targets}
        assert sum(weights.values()) in (0, 100)
        confirmed = self.confirmed or {}
        noted = any(record.role for record in observed.records.values())  # or it was killed before it could note it
        if observed.route.weights or (confirmed and noted):
            assert sum(weights.values()) == 100, "a system that served is never routed to nothing"
        pinned = {name: record.pin for name, record in observed.records.items()} | dict(decided.pins)
        pinned |= {record.name: record.pin for record in decided.new_records}
        for pod in self.pods:
            assert not pod.ready or pinned.get(pod.revision) in (None, pod.digest), "pods of other bytes than recorded"
        replicas = self.spec.get("replicas", 1)
        stable = decided.target(Role.STABLE)
        told = observed.resource.status.get("revisions", ())
        if stable and (stable.revision, Role.STABLE) not in {(each["name"], each["role"]) for each in told}:
            answering = any(self.ready(name) for name in confirmed.keys() & observed.workloads.keys())
            record = observed.records.get(stable.revision)
            served = confirmed.get(stable.revision) or (record and record.role is Role.STABLE)
            assert self.ready(stable.revision) or served or not answering, "what never answered took over"
        for target in decided.targets:
            more = target.weight > confirmed.get(target.revision, 0) and self.known
            if more and target.role is not Role.STABLE:
                assert not target.leaving
                alone = stable is not None and not self.ready(stable.revision)
                enough = self.ready(target.revision) * 100 >= target.weight * replicas
                assert enough or (alone and decided.step.rung == "rolling-back"), "weight without capacity"

    # What the cluster does

    def nodes(self, *, steps: int = 1, seed: int = 0) -> None:
        """Deployments make and end pods; pods go on by `steps` stages."""
        for _ in range(steps):
            self._controllers(seed)
            for pod in self.pods:
                self._advance(pod)

    def _controllers(self, seed: int) -> None:
        wanted = self.deployments()
        for revision in {pod.revision for pod in self.pods} | wanted.keys():
            mine = [pod for pod in self.pods if pod.revision == revision]
            surplus = len(mine) - wanted.get(revision, 0)
            mine.sort(key=lambda pod: (pod.stage, hash((pod.name, seed))))
            for pod in mine[: max(0, surplus)]:
                self.pods.remove(pod)
            for _ in range(-surplus):
                self.counter += 1
                self.pods.append(SimPod(f"{self.name}-{revision}-{self.counter:04}", revision, self.uris[revision]))

    def _advance(self, pod: SimPod) -> None:
        config, knobs = self._mounts(pod)
        if knobs:
            pod.knobs = knobs_hash(knobs[names.KNOBS_KEY])
        pin = config.get(names.DIGEST_KEY)
        if self._waits(pod):
            return
        if pod.uri == BROKEN:
            pod.termination = Termination(
                reason="NotFound",
                message="nothing at s3://m/broken",
                condition="ArtifactVerified",
                field="spec.artifact.uri",
            )
        elif pod.stage == 0 and pin and pin != DIGESTS[pod.uri]:
            pod.termination = Termination(reason="DigestMismatch", message="other bytes", condition="ArtifactVerified")
        elif pod.stage == 0:
            pod.digest, pod.stage = DIGESTS[pod.uri], 1
            pod.termination = Termination(reason="Prepared", digest=pod.digest)
        else:
            pod.stage = 2

    def _mounts(self, pod: SimPod) -> tuple[Object, Object]:
        """The data of the ConfigMaps of a pod; {} for one that is not there."""
        mounted = (f"{self.name}-{pod.revision}", f"{self.name}-knobs")
        config, knobs = (self.objects.get(("ConfigMap", name), {}).get("data", {}) for name in mounted)
        return config, knobs

    def _waits(self, pod: SimPod) -> bool:
        """Whether no container of a pod starts, because something that it mounts is not there."""
        return pod.stage == 0 and not all(self._mounts(pod))

    def acknowledge(self, which: int | None = None) -> None:
        """Routers take what is published: one of them, or all."""
        for index in range(len(self.routers)):
            if which in (None, index):
                self.routers[index] = None if self.published is None else dict(self.published)

    def kill(self, index: int) -> None:
        """A pod ends and is replaced."""
        if self.pods:
            self.pods.pop(index % len(self.pods))

    def restart_operator(self) -> None:
        """Its memory is lost: acknowledgements and reports."""
        self.known = False
        for pod in self.pods:
            pod.readable = False

    def remember(self) -> None:
        """Routers and pods were read again."""
        self.known = True
        for pod in self.pods:
            pod.readable = True

    # Time without faults

    def settle(self, *, seconds: float = 1.0, rounds: int = 60) -> int:
        """Run without faults until a pass writes nothing; how many passes that took."""
        self.remember()
        quiet = 0
        for count in range(rounds):
            before = self.writes
            self.nodes()
            self.pass_()
            self.acknowledge()
            self.now += seconds
            quiet = quiet + 1 if self.writes == before and not self._moves() else 0
            if quiet == 2:
                return count
        raise AssertionError(f"no fixpoint after {rounds} passes: {self.status}")

    def _moves(self) -> bool:
        wanted = self.deployments()
        counts = {name: sum(pod.revision == name for pod in self.pods) for name in wanted}
        stuck = (
            pod.uri == BROKEN or pod.termination is not None or self._waits(pod) for pod in self.pods if pod.stage < 2
        )
        return counts != wanted or not all(stuck)

    # What the user reads

    def condition(self, kind: str) -> Object:
        """One condition; {} when it is absent."""
        return next((each for each in self.status.get("conditions", []) if each["type"] == kind), {})

    def said(self, kind: str) -> tuple[str, str]:
        """Status and reason of a condition."""
        return self.condition(kind)["status"], self.condition(kind)["reason"]

    def role(self, role: Role) -> str | None:
        """The revision in a role, by status."""
        present = (each for each in self.status.get("revisions", []) if not each.get("leaving"))
        return next((each["name"] for each in present if each["role"] == role), None)

    def weights(self) -> dict[str, int]:
        """The weights that status reports."""
        return {each["name"]: each["weight"] for each in self.status.get("revisions", []) if each["weight"]}


def world(uri: str = "s3://m/a", **spec: Any) -> World:
    """A ModelDeployment that was just applied."""
    return World({"artifact": {"uri": uri}, "device": {"kind": "cpu"}, **spec})


def serving(uri: str = "s3://m/a", **spec: Any) -> World:
    """One that came to rest."""
    w = world(uri, **spec)
    w.settle()
    return w
