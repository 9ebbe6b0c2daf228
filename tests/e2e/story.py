"""The product's story on a real cluster, told once: `make demo` prints it, the end-to-end test asserts it.

Deploy, ask, tune under traffic, refuse a hostile file, canary, promote, roll back. Every chapter returns what happened,
figures and observations, never a verdict; `failures` are those of the whole story.
"""

import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import numpy as np

from tests.e2e import models
from tests.e2e.cluster_access import Access, Object, StoryError, conditions, is_true, wait_until
from tests.e2e.operator_metrics import sample
from tests.e2e.traffic import Traffic, burst, request_body

MODEL = "sentences"
QUIET_SECONDS = 65  # longer than the routers keep a cluster that nobody uses, and than the operator leaves pods alone
SENTENCES = (
    "A man is playing a guitar on stage.",
    "Someone performs music with an instrument.",
    "The stock market fell sharply on Monday.",
    "Share prices dropped at the start of the week.",
    "How do I reset my password?",
    "The recipe needs two cups of flour and one egg.",
)
SHORT_WORDS = ("rain", "snow", "the train leaves at nine", "bread and butter", "a quiet street in the old town")


@dataclass(frozen=True, slots=True)
class Deployed:
    ready_seconds: float  # kubectl apply -> Ready, Routed and UpToDate
    stable: str
    similarities: tuple[tuple[str, str, float], ...]
    pods: frozenset[str]  # UIDs


@dataclass(frozen=True, slots=True)
class Tuned:
    acknowledged_seconds: float  # kubectl apply -> every pod confirmed the knobs
    effective: dict[str, Any]
    pods_before: frozenset[str]
    pods_after: frozenset[str]
    restarts: int
    requests: int
    failures: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Refused:
    seconds: float  # kubectl apply -> the condition says why
    message: str
    revision: str
    answered_by: frozenset[str]  # the revisions that answered meanwhile
    requests: int
    failures: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Canaried:
    ready_seconds: float  # kubectl apply -> the candidate is warm and the router confirmed its weight
    acknowledged_seconds: float  # a later weight change alone -> confirmed by the router
    split: Counter[str]
    candidate: str
    failures: tuple[str, ...]

    @property
    def share(self) -> float:
        """Per cent of the burst that the candidate answered."""
        return 100 * self.split[self.candidate] / self.split.total()


@dataclass(frozen=True, slots=True)
class Promoted:
    seconds: float  # kubectl apply -> it answers everything and UpToDate
    stable: str
    candidate_pods_before: frozenset[str]
    pods_after: frozenset[str]
    restarts: int
    failures: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RolledBack:
    seconds: float  # kubectl apply -> the previous version answers everything
    settled_seconds: float  # kubectl apply -> UpToDate
    stable: str
    failures: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rested:
    writes_per_minute: float  # of the operator, to the API server
    operator_memory_mb: float


@dataclass
class Story:
    """The state between two chapters: the manifest as a user would hold it in Git, and the traffic."""

    access: Access
    namespace: str
    manifest: Object
    url: str = ""  # of the model's Service, once it is there
    failures: list[str] = field(default_factory=list)
    requests: int = 0

    def __post_init__(self) -> None:
        tokens = models.tokenizer()
        self.bodies = [request_body(tokens, [text]) for text in (*SENTENCES, *SHORT_WORDS)]
        self.sentences = request_body(tokens, SENTENCES)
        self._open = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    # Chapters

    def deploy(self) -> Deployed:
        """Apply the manifest, wait until it serves, and ask it which sentences are alike."""
        start = self._apply()
        resource = self._wait("Ready", "Routed", "UpToDate", seconds=300)
        ready = time.monotonic() - start
        self.url = self._open.enter_context(self.access.reach(self.namespace, MODEL))
        stable = self._revision(resource, "Stable")
        return Deployed(ready, stable, self._similarities(), frozenset(self._pods()))

    def tune(self, **batching: Any) -> Tuned:
        """Change hot fields under traffic."""
        before = self._pods()
        with self._traffic() as traffic:
            time.sleep(1)
            self.manifest["spec"]["batching"] |= batching
            start = self._apply()
            resource = self._wait("KnobsApplied", seconds=60)
            acknowledged = time.monotonic() - start
            time.sleep(1)
        after = self._pods()
        return Tuned(
            acknowledged,
            resource["status"]["knobs"]["effective"],
            frozenset(before),
            frozenset(after),
            sum(after.values()) - sum(before.values()),
            len(traffic.answers),
            self._account(traffic),
        )

    def refuse(self, artifact: Object) -> Refused:
        """Give a share of the requests to a file that would run code when it is loaded, and take it back."""
        with self._traffic() as traffic:
            self.manifest["spec"]["canary"] = {"artifact": artifact, "weight": 50}
            start = self._apply()
            resource = wait_until("ArtifactVerified=False", self._is_refused, seconds=120)
            seconds = time.monotonic() - start
            time.sleep(1)
            del self.manifest["spec"]["canary"]
            self._apply()
            self._wait("UpToDate", "Routed", seconds=60)
        return Refused(
            seconds,
            conditions(resource)["ArtifactVerified"]["message"],
            self._revision(resource, "Canary"),
            frozenset(traffic.by_revision()),
            len(traffic.answers),
            self._account(traffic),
        )

    def _is_refused(self) -> Object | None:
        resource = self._resource()
        return resource if conditions(resource).get("ArtifactVerified", {}).get("status") == "False" else None

    def canary(self, artifact: Object, *, weight: int, count: int) -> Canaried:
        """Give a second version `weight` per cent, and count who answers `count` requests."""
        with self._traffic() as traffic:
            self.manifest["spec"]["canary"] = {"artifact": artifact, "weight": max(1, weight // 2)}
            start = self._apply()
            resource = self._wait("UpToDate", "Routed", seconds=300)
            ready = time.monotonic() - start
            candidate = self._revision(resource, "Canary")
            self.manifest["spec"]["canary"]["weight"] = weight
            start = self._apply()
            self._wait("Routed", seconds=60)
            acknowledged = time.monotonic() - start
            self._wait("UpToDate", "Routed", seconds=120)
        failures = self._account(traffic)
        answers = burst(self.url, MODEL, self.bodies, count=count)
        failed = tuple(a.error for a in answers if a.error)
        self.failures += failed
        self.requests += count
        split = Counter(a.revision or "none" for a in answers if not a.error)
        return Canaried(ready, acknowledged, split, candidate, (*failures, *failed))

    def promote(self) -> Promoted:
        """Make the candidate's artifact the stable one, and remove the canary."""
        spec = self.manifest["spec"]
        candidate = self._revision(self._resource(), "Canary")
        before = self._pods(candidate)
        with self._traffic() as traffic:
            spec["artifact"] |= spec.pop("canary")["artifact"]
            start = self._apply()
            resource = self._wait("UpToDate", "Routed", "Ready", seconds=300)
            seconds = time.monotonic() - start
            time.sleep(1)
        after = self._pods(candidate)
        return Promoted(
            seconds,
            self._revision(resource, "Stable"),
            frozenset(before),
            frozenset(after),
            sum(after.values()),
            self._account(traffic),
        )

    def roll_back(self, artifact: Object) -> RolledBack:
        """Revert to the manifest of before the canary; wait for the previous version to answer everything."""
        resource = wait_until(
            "the previous version to be ready for a rollback",
            lambda: is_true(r := self._resource(), "RollbackReady") and r,
            seconds=60,
        )
        previous = self._revision(resource, "Previous")
        with self._traffic() as traffic:
            time.sleep(1)
            self.manifest["spec"]["artifact"] |= artifact
            start = self._apply()
            self._wait("UpToDate", "Routed", seconds=300)
            settled = time.monotonic() - start
            time.sleep(1)
        last_other = max((a.at for a in traffic.answers if a.revision != previous), default=start)
        own = [a.at for a in traffic.answers if a.revision == previous and a.at > max(start, last_other)]
        if not own:
            raise StoryError(f"{previous} does not answer everything after the rollback")
        return RolledBack(
            min(own) - start,
            settled,
            self._revision(self._resource(), "Stable"),
            self._account(traffic),
        )

    def rest(self, system_namespace: str, *, seconds: float) -> Rested:
        """Leave it alone once nothing is on its way any more, and count what the operator writes."""
        before = sample(self.access, system_namespace)

        def quiet() -> bool:
            nonlocal before
            time.sleep(QUIET_SECONDS)
            last, before = before, sample(self.access, system_namespace)
            return last.writes == before.writes

        wait_until("the operator to come to rest", quiet, seconds=240)
        time.sleep(seconds)
        after = sample(self.access, system_namespace)
        return Rested(60 * (after.writes - before.writes) / seconds, after.memory_mb)

    # What the chapters share

    def _apply(self) -> float:
        """`kubectl apply` of the manifest; the time.monotonic() at which it was answered."""
        self.access.apply(self.manifest)
        return time.monotonic()

    def _resource(self) -> Object:
        return self.access.get(self.namespace, "modeldeployment", MODEL)

    def _wait(self, *types: str, seconds: float) -> Object:
        """The resource as soon as these conditions are True at its present generation."""
        found: Object = {}

        def probe() -> bool:
            nonlocal found
            found = self._resource()
            return is_true(found, *types)

        try:
            wait_until(" and ".join(types), probe, seconds=seconds, every=0.05)
        except StoryError as error:
            said = "; ".join(
                f"{c['type']}={c['status']} {c['reason']}: {c.get('message', '')}" for c in conditions(found).values()
            )
            raise StoryError(f"{error}. The resource says: {said or 'nothing yet'}") from None
        return found

    def _revision(self, resource: Object, role: str) -> str:
        for revision in resource.get("status", {}).get("revisions", []):
            if revision["role"] == role:
                return str(revision["name"])
        raise StoryError(f"no revision has the role {role}: {resource.get('status', {}).get('revisions')}")

    def _pods(self, revision: str | None = None) -> dict[str, int]:
        """UID -> restarts of the live runtime pods."""
        selector = f"headway.dev/model={MODEL},headway.dev/component=runtime"
        pods = self.access.items(
            self.namespace, "pods", "-l", f"{selector},headway.dev/revision={revision}" if revision else selector
        )
        return {
            p["metadata"]["uid"]: sum(c.get("restartCount", 0) for c in p["status"].get("containerStatuses", []))
            for p in pods
            if "deletionTimestamp" not in p["metadata"]
        }

    def _traffic(self) -> Traffic:
        return Traffic(self.url, MODEL, self.bodies)

    def _account(self, traffic: Traffic) -> tuple[str, ...]:
        failed = tuple(a.error for a in traffic.failures if a.error)
        self.failures += failed
        self.requests += len(traffic.answers)
        return failed

    def _similarities(self) -> tuple[tuple[str, str, float], ...]:
        """Cosine similarity of neighbouring sentences and of one pair that has nothing in common."""
        import httpx

        answer = httpx.post(
            f"{self.url}/v2/models/{MODEL}/infer", json=self.sentences, headers={"host": MODEL}, timeout=30
        )
        if answer.status_code != httpx.codes.OK:
            raise StoryError(f"the first request was answered {answer.status_code}: {answer.text[:300]}")
        output = answer.json()["outputs"][0]
        vectors = np.array(output["data"], dtype=np.float32).reshape(output["shape"])
        pairs = ((0, 1), (2, 3), (0, 2), (4, 5))
        return tuple((SENTENCES[a], SENTENCES[b], float(vectors[a] @ vectors[b])) for a, b in pairs)


__all__ = ["MODEL", "Canaried", "Deployed", "Promoted", "Refused", "Rested", "RolledBack", "Story", "Tuned"]
