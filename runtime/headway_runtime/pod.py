"""What this pod is and how far it has come: the one object that the HTTP front, the admin server and the life cycle
share.

Lives on the event loop, except `progress`, `loaded` and `served`, which hand over from the engine thread.
"""

import itertools
import time
from collections import deque
from collections.abc import Sequence
from itertools import pairwise

from headway_api.podconfig import (
    BucketCost,
    BucketReport,
    ColdConfig,
    KnobsReport,
    ParityReport,
    Phase,
    Recommendation,
    Report,
    SandboxReport,
    Termination,
)

from headway_runtime import knobs
from headway_runtime.batching.engine import Outcome, RunRecord
from headway_runtime.drift import Drift
from headway_runtime.errors import (
    DeadlineExceededError,
    InvalidRequestError,
    NotServingError,
    OverloadedError,
    QueueFullError,
)
from headway_runtime.generation.delivery import Delivery, StepRecord
from headway_runtime.generator import Generator
from headway_runtime.logs import log
from headway_runtime.metrics import Metrics
from headway_runtime.model import Model
from headway_runtime.origin import Origin
from headway_runtime.served import Served
from headway_runtime.serving.cache import ResponseCache
from headway_runtime.watch import Watch

__all__ = ["LONGEST_STEP", "Generator", "Model", "Pod"]

RECENT_SECONDS = 60.0
LONGEST_STEP = 600.0  # seconds: a bucket or a trial before the pod is ready that takes longer has failed
SMALLER_BUCKETS = ("use smaller buckets, or more CPUs", "spec.batching.shapeBuckets")
_SERVING = (Phase.READY, Phase.DRAINING)
_OVERLOAD = frozenset({QueueFullError.kind, OverloadedError.kind, DeadlineExceededError.kind})
STUCK_SECONDS = 30.0  # no run takes this long and 20 times its bucket's measured cost, unless the device hangs


class Pod:
    """State and report of one serving process."""

    def __init__(
        self, config: ColdConfig, metrics: Metrics, origin: Origin, *, sandbox: SandboxReport | None = None
    ) -> None:
        self.config = config
        self.metrics = metrics
        self.origin = origin
        self.sandbox = sandbox
        self.phase = Phase.LOADING
        self.model: Served | None = None
        self.failure: Termination | None = None
        self.parity: ParityReport | None = None
        self.settings: knobs.Settings | None = None
        self.closing = False  # answers carry `connection: close`, the health check says 503
        self.refusing = False  # new requests are not admitted any more
        self.in_flight = 0
        self.requests = 0
        self.failures = 0
        self.arrivals: deque[float] = deque(maxlen=16)  # time.monotonic() of the latest requests
        self.ids = itertools.count()
        self.cache = ResponseCache(0, metrics)
        self.watch: Watch | None = None  # once it is ready
        self.drift: Drift | None = None
        self._knobs = KnobsReport()
        self._asked: tuple[str, str] | None = None  # text and hash that wait for the model
        self._total = 0
        self._costs: list[BucketCost] = []
        self._step: tuple[str, float, str, str] | None = None  # what the loading thread does, since when, and advice
        metrics.sandbox_complete.set(sandbox is not None and not sandbox.missing)
        metrics.revision.info({"model": config.model, "revision": config.revision})
        metrics.instances.set(config.batching.instances)

    @property
    def ready(self) -> bool:
        """Whether the health check says so."""
        return self.phase is Phase.READY

    @property
    def serves_in_need(self) -> bool:
        """Whether it drains and still answers whoever comes."""
        return self.phase is Phase.DRAINING and self.model is not None and not self.refusing

    def longest_gap(self, now: float) -> float:
        """Seconds of the longest pause between the latest requests of the last minute; 0 without any."""
        recent = [at for at in self.arrivals if now - at < RECENT_SECONDS]
        return max((later - earlier for earlier, later in pairwise([*recent, now])), default=0.0)

    def serving(self) -> tuple[Served, knobs.Settings]:
        """The model and the knobs in force. Raises NotServingError, saying what the pod is doing instead."""
        if self.refusing:
            raise NotServingError("this pod is ending; send the request again")
        if self.model is None or self.settings is None or self.phase not in _SERVING:
            raise NotServingError(self.describe())
        return self.model, self.settings

    def computing(self) -> tuple[Model, knobs.Settings]:
        """The same for who sends tensors. Raises InvalidRequestError, too, where text is generated."""
        model, settings = self.serving()
        if not isinstance(model, Model):
            raise InvalidRequestError(
                "this model generates text: ask it by POST /v1/completions or /v1/chat/completions, or over gRPC by "
                "ModelStreamInfer"
            )
        return model, settings

    def generating(self) -> tuple[Generator, knobs.Settings]:
        """The same for who wants text. Raises InvalidRequestError, too, where tensors are computed."""
        model, settings = self.serving()
        if not isinstance(model, Generator):
            raise InvalidRequestError(
                f"this model generates no text: ask it by POST /v2/models/{self.config.model}/infer"
            )
        return model, settings

    def describe(self) -> str:
        """The phase in words."""
        if self.failure is not None:
            return f"this pod cannot serve: {self.failure.reason}: {self.failure.message}"
        if self.phase is Phase.WARMING:
            return f"this pod is warming: {len(self._costs)} of {self._total} buckets"
        return f"this pod is {self.phase.value.lower()}"

    def warming(self, total: int) -> None:
        """The program is loaded; `total` buckets are to be run."""
        if self.phase is Phase.LOADING:
            self.phase = Phase.WARMING
        self._total = total

    def begins(self, step: str, advice: tuple[str, str] = SMALLER_BUCKETS) -> None:
        """The loading thread begins with `step`, such as `running bucket batch=8`. `advice`: what to do where it does
        not end, and the field of the spec.
        """
        self._step = (step, time.monotonic(), *advice)

    def overdue(self) -> Termination | None:
        """Why loading has failed, when its present step has taken longer than any may."""
        if self._step is None or self.model is not None or time.monotonic() - self._step[1] < LONGEST_STEP:
            return None
        step, _, advice, field = self._step
        message = f"{step}: not done after {LONGEST_STEP / 60:.0f} minutes; {advice}"
        return Termination(reason="WarmUpFailed", message=message, condition="Ready", field=field)

    def warmed(self, cost: BucketCost) -> None:
        """One more bucket was run."""
        self._costs.append(cost)
        self.metrics.warmed(cost.sizes, cost.seconds)
        log("bucket_warm", bucket=cost.sizes, seconds=cost.seconds, warm=len(self._costs), total=self._total)

    def verified(self, parity: ParityReport) -> None:
        """The artifact's golden samples were run."""
        self.parity = parity
        self.metrics.parity_agrees.set(parity.agrees)

    def compare_with(self, drift: Drift) -> None:
        """What requests and answers are compared with from now on."""
        self.drift = self.metrics.drift.shown = drift

    def install(self, model: Served) -> None:
        """Every bucket is warm: obey the newest knobs, or the defaults until there are any, and be ready."""
        self.model = model
        self.metrics.instances.set(model.instances)
        if isinstance(model, Model):
            self.watch = Watch(
                model.layout, model.buckets, model.cost, instances=model.instances, began=time.monotonic()
            )
        if (room := model.room()) is not None:
            self.metrics.generates(room.blocks)
        self._apply("{}", None)
        if self._asked is not None:
            self._apply(*self._asked)
        if self.phase in (Phase.LOADING, Phase.WARMING):  # it may have been told to end meanwhile
            self.phase = Phase.READY

    def knobs_changed(self, text: str, name: str) -> None:
        """A new knobs file was found."""
        self._asked = (text, name)
        if self.model is not None:
            self._apply(text, name)

    def knobs_failed(self, message: str) -> None:
        """The knobs file cannot be read; what was in force still is."""
        self._knobs = self._knobs.model_copy(update={"error": message})
        log("knobs_rejected", level="warning", error_message=message)

    def served(self, outcomes: Sequence[Outcome], record: RunRecord | None) -> None:
        """A run ended, or requests left the line: wake whoever waits for them."""
        for outcome in outcomes:
            try:
                outcome.slot(outcome.result)
            except Exception as error:  # one request's, of which the others must not suffer
                log("answer_failed", level="error", error=error)
        model = self.model
        if record is None or self.watch is None or not isinstance(model, Model):
            return
        self.metrics.ran(record, model.buckets.covering(record.sizes))
        if self.watch.ran(outcomes, record, time.monotonic()) and self.settings is not None:
            model.run_by(self.settings, self.watch.cost)

    def stepped(self, deliveries: Sequence[Delivery], record: StepRecord | None) -> None:
        """A step of generation ended, or requests left before one: hand every stream what it gets."""
        for delivery in deliveries:
            delivery.hand_over()
        if record is not None:
            self.metrics.generated(record)

    def refused(self, kind: str) -> None:
        """A request was answered with an error of this kind."""
        self.metrics.refused(kind)
        if self.watch is not None and kind in _OVERLOAD:
            self.watch.refused(time.monotonic())

    def stuck(self) -> bool:
        """Whether the current run takes longer than any run can."""
        if self.model is None:
            return False
        slowest = max((cost.seconds for cost in self._costs), default=0.0)
        if self.settings is not None:
            slowest *= self.model.stretch(self.settings)
        return self.model.busy_for() > max(STUCK_SECONDS, 20 * slowest)

    def report(self) -> Report:
        """What this pod says of itself on the admin port."""
        return Report(
            model=self.config.model,
            revision=self.config.revision,
            phase=self.phase,
            artifact_digest=self.origin.digest,
            torch=self.origin.torch,
            signer=self.origin.signer,
            native=self.origin.native,
            sandbox=self.sandbox,
            precision=None if self.model is None else self.config.precision,
            parity=self.parity,
            buckets=BucketReport(total=self._total, warm=len(self._costs), costs=list(self._costs)),
            padding=[] if self.model is None else list(self.model.padding),
            recommendation=self._recommendation(),
            generation=None if self.model is None else self.model.room(),
            knobs=self._knobs,
            failure=self.failure,
            signature=None if self.model is None else self.model.hash(),
            requests=self.requests,
            failures=self.failures,
        )

    def _recommendation(self) -> Recommendation | None:
        if self.watch is None or self.settings is None:
            return None
        settings = self.settings
        return self.watch.recommendation(settings.limits, settings.latency_target)

    def _apply(self, text: str, name: str | None) -> None:
        """Obey a knobs file from the next run on, and acknowledge it; a bad one changes nothing."""
        assert self.model is not None
        try:
            asked = knobs.parse(text)
        except knobs.KnobsError as error:
            self.knobs_failed(str(error))
            return
        if passed_over := knobs.unknown(text):
            log("knobs_unknown", level="warning", keys=passed_over)
        before = self.settings
        self.settings = settings = self.model.obey(asked)
        if before is not None and before.non_finite is not settings.non_finite:
            self.cache.clear()  # what is an answer has changed
        self.cache.resize(settings.cache_bytes)
        self._knobs = KnobsReport(hash=name, effective=settings.effective, clamped=list(settings.clamped))
        self.metrics.knobs.info({"hash": name or ""})
        log("knobs_applied", hash=name, effective=settings.effective, clamped=[c.message for c in settings.clamped])
