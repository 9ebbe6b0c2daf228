"""What the operator hands to a pod, and what the pod answers.

Down: `ColdConfig` (file `names.CONFIG_FILE`, fixed for a revision), the pinned digest (`names.DIGEST_FILE`) and `Knobs`
(`names.KNOBS_FILE`, hot). Up: `Termination` (the termination message of either container) and `Report` (GET
`/report` on `names.ADMIN_PORT`). A report names the hash of the knobs file it obeys: that is the acknowledgement.
Readers ignore what they do not know, because a pod may be older or newer than the operator.
"""

import hashlib
import json
from enum import StrEnum
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from headway_api.podtemplate import Sandbox
from headway_api.types import (
    Batching,
    BatchingPolicy,
    CacheType,
    Device,
    Generation,
    Limits,
    NonFinite,
    OnMismatch,
    Oversize,
    Padding,
    Precision,
    Queue,
    Spec,
    SpeculationMethod,
    TrustLevel,
)
from headway_api.units import DURATION_PATTERN, MAX_DURATION_LENGTH


class WireModel(BaseModel):
    """Frozen, camelCase on the wire, unknown fields ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True)

    def to_json(self) -> str:
        """Canonical JSON: sorted keys, no spaces, absent fields left out; the same value gives the same bytes."""
        return json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))

    def to_dict(self) -> dict[str, Any]:
        """The value as JSON types, camelCase, without absent fields."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class ColdArtifact(WireModel):
    """Where to fetch from. The digest travels in a file of its own, because it is pinned later."""

    uri: str
    program: str | None = None  # None: the only one, or the one named "model"
    require: TrustLevel = TrustLevel.NONE


class ColdVerification(WireModel):
    """How golden answers are compared: within `atol + rtol * |golden|`. None: the artifact's own tolerance, else a
    default for the element type.
    """

    on_mismatch: OnMismatch = OnMismatch.BLOCK
    rtol: float | None = None
    atol: float | None = None


class ColdBatching(WireModel):
    """The cold part of `spec.batching`, as the user set it."""

    shape_buckets: dict[str, list[int]] | None = None
    dimensions: dict[str, str] | None = None
    padding: Padding = Padding.AUTO
    oversize: Oversize = Oversize.REJECT
    instances: int = 1
    policy: BatchingPolicy | None = None  # None: as the artifact is


class ColdSpeculation(WireModel):
    """`spec.generation.speculation`."""

    method: SpeculationMethod
    tokens: int = 4
    program: str = "draft"


class ColdGeneration(WireModel):
    """The cold part of `spec.generation`, as the user set it."""

    max_length: int | None = None
    cache_bytes: str | None = None
    cache_type: CacheType = CacheType.FLOAT32
    speculation: ColdSpeculation | None = None


class ColdConfig(WireModel):
    """All that a pod needs to prepare, load and warm its revision."""

    model: str
    namespace: str
    revision: str
    artifact: ColdArtifact
    device: Device
    precision: Precision = Precision.EXPORTED
    batching: ColdBatching = ColdBatching()
    generation: ColdGeneration = ColdGeneration()
    verification: ColdVerification = ColdVerification()
    sandbox: Sandbox = Sandbox.BEST_EFFORT
    drain_timeout: str = "60s"


class QueueKnobs(WireModel):
    """Bounds of the waiting line in a pod: `spec.batching.queue`, of which a pod may know less than the operator."""

    capacity: int = Field(default=512, ge=1)
    bytes: str = "256Mi"
    timeout: str = "2s"


class Knobs(WireModel):
    """The hot fields of every pod of a ModelDeployment, as asked for; a pod clamps what its program cannot honour."""

    max_batch: int | None = Field(default=None, ge=1)
    max_wait: str = "2ms"
    queue: QueueKnobs = QueueKnobs()
    latency_target: str | None = None
    cache_bytes: str = "0"
    non_finite: NonFinite = NonFinite.ALLOW
    request_bytes: str = "64Mi"
    step_tokens: int = Field(default=256, ge=1)
    prefix_cache: bool = True

    @classmethod
    def of(cls, spec: Spec) -> Self:
        """The hot fields of a spec that rule in a pod, with their defaults."""
        batching, limits = spec.batching or Batching(), spec.limits or Limits()
        generation = spec.generation or Generation()
        return cls(
            max_batch=batching.max_batch,
            max_wait=batching.max_wait,
            queue=QueueKnobs.model_validate((batching.queue or Queue()).model_dump(by_alias=True)),
            latency_target=batching.latency_target,
            cache_bytes=batching.cache.bytes if batching.cache else "0",
            non_finite=batching.non_finite,
            request_bytes=limits.request_bytes,
            step_tokens=generation.step_tokens,
            prefix_cache=generation.prefix_cache,
        )


def knobs_hash(text: str) -> str:
    """The name of a knobs file: what the operator asks pods to acknowledge, and what they acknowledge."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


class Termination(WireModel):
    """The termination message of a container: why it refused, or what it prepared (`reason` is then `Prepared`)."""

    reason: str = Field(pattern=r"^[A-Z][A-Za-z]*$", max_length=64)
    message: str = ""
    condition: str | None = (
        None  # which condition of the ModelDeployment this speaks of: Accepted, ArtifactVerified, Ready
    )
    field: str | None = None  # the field of the spec that is at fault
    digest: str | None = None  # with Prepared: sha256:<hex> of the fetched file
    bytes: int | None = None  # with Prepared: its size
    torch: str | None = None  # with Prepared: the torch version that exported it
    signer: str | None = None  # with Prepared: id of the key whose signature was verified


PREPARED = "Prepared"


class Phase(StrEnum):
    """Where a pod is in its life."""

    LOADING = "Loading"
    WARMING = "Warming"
    READY = "Ready"
    DRAINING = "Draining"
    FAILED = "Failed"


class BucketReport(WireModel):
    """Progress and cost of the warm-up: `costs` holds one entry for each bucket run so far."""

    total: int = Field(default=0, ge=0, le=1_000_000)
    warm: int = Field(default=0, ge=0, le=1_000_000)
    costs: list["BucketCost"] = []


class BucketCost(WireModel):
    """What one run of a bucket cost."""

    sizes: dict[str, int]  # dimension name -> axis size
    seconds: float


class Clamp(WireModel):
    """A knob that the program could not honour as asked."""

    field: str  # spec.batching.maxBatch
    asked: str
    effective: str
    message: str


class KnobsReport(WireModel):
    """Which knobs file is in force, and what came of it."""

    hash: str | None = None
    effective: dict[str, Any] = {}
    clamped: list[Clamp] = []
    error: str | None = None  # the newest file could not be read; the one of `hash` is still in force


class SandboxReport(WireModel):
    """Which parts of the sandbox confine the serving process, and what is missing (`[]`: nothing)."""

    landlock: int = 0  # the kernel's Landlock ABI that is in force; 0: none
    seccomp: bool = False
    missing: list[str] = []


class ParityReport(WireModel):
    """How the golden answers of the artifact compare with this pod's."""

    samples: int = 0
    agrees: bool = True
    largest_difference: float = 0.0  # absolute, over all samples
    message: str = ""


class Verdict(StrEnum):
    """What came of the trial of a dimension: may smaller requests be filled up along it?"""

    PROVEN = "Proven"  # padding changed no answer: padded
    TRUSTED = "Trusted"  # padded, untried, because the user said so
    UNPROVEN = "Unproven"  # it could not be tried (no pad value is known): not padded
    FAILED = "Failed"  # padding changed an answer: not padded
    NEVER = "Never"  # the user said so: not padded


class PaddingReport(WireModel):
    """One dimension other than the batch."""

    dimension: str
    verdict: Verdict
    message: str = ""  # what was tried, or why not; with Failed: the output, and the largest difference


class Advice(StrEnum):
    """What the latest minutes of load say of the knobs."""

    UNDER_BATCHED = "UnderBatched"
    BALANCED = "Balanced"
    SATURATED = "Saturated"


class Recommendation(WireModel):
    """What to set, and why. None: leave it."""

    reason: Advice
    message: str
    max_batch: int | None = Field(default=None, ge=1)
    max_wait: str | None = Field(default=None, pattern=DURATION_PATTERN, max_length=MAX_DURATION_LENGTH)


class GenerationReport(WireModel):
    """What a pod that generates text has room for. Lengths are tokens of a sequence, prompt and answer together."""

    block_tokens: int = Field(ge=1)  # tokens of one block of the cache
    blocks: int = Field(ge=0)  # of the cache
    blocks_free: int = Field(ge=0)  # those that a sequence could take now: unused, or kept for later prompts only
    bytes_per_token: int = Field(ge=0)  # keys and values of all layers
    cache_bytes: int = Field(ge=0)
    max_length: int = Field(ge=0)  # what a sequence may have
    sequences: int = Field(ge=0)  # of max_length that fit at the same time
    length_p99: int | None = None  # of the latest sequences
    sequences_p99: int | None = None  # of that length that fit at the same time
    recommended_max_length: int | None = None  # None: leave it
    weights_bytes: int = Field(default=0, ge=0)
    step_bytes: int = Field(default=0, ge=0)  # that one run needs besides, at most
    kernels: str = ""  # what computes: native-avx512, native-avx2, reference, ...


class Report(WireModel):
    """What a runtime pod says of itself."""

    model: str
    revision: str
    phase: Phase
    artifact_digest: str | None = None
    torch: str | None = None
    signer: str | None = None  # id of the key whose signature was verified
    native: str | None = None  # target of the native code that runs; None: the register machine
    sandbox: SandboxReport | None = None
    precision: Precision | None = None  # of the large weights; None: it is not ready yet, or older than this field
    parity: ParityReport | None = None  # None: the artifact carries no golden answers, or they were not run yet
    buckets: BucketReport = BucketReport()
    padding: list[PaddingReport] = []
    recommendation: Recommendation | None = None  # None: too few requests to say anything
    generation: GenerationReport | None = None  # None: it does not generate text
    knobs: KnobsReport = KnobsReport()
    failure: Termination | None = None
    signature: str | None = None  # hash of the names, datatypes and shapes of inputs and outputs
    requests: int = 0
    failures: int = 0
