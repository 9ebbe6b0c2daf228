"""The `status` of a ModelDeployment, as its readers may rely on it. The operator writes it, nobody else.

Nothing here is copied from `spec`: a weight is what the routers acknowledged, a knob what the pods obey. Every field
but the keys of lists may be absent.
"""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from headway_api.fields import Opaque, keyed_by

Time = Annotated[str, Field(json_schema_extra={"format": "date-time"})]


class StatusModel(BaseModel):
    """Frozen, camelCase on the wire; a field that is not here would be dropped by the API server."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)


class RevisionStatus(StatusModel):
    """A version that is live."""

    name: str = Field(description="Name of the revision: eight hexadecimal digits.")
    role: str | None = Field(
        default=None,
        description="Stable, Incoming (becomes the stable one when it is ready), Canary, or Previous (kept for a "
        "rollback).",
    )
    weight: int | None = Field(
        default=None, description="Per cent of requests that it answers, as acknowledged by every router that serves."
    )
    replicas: int | None = Field(default=None, description="Pods that it should have.")
    ready: int | None = Field(default=None, description="Pods that are ready: loaded, and every bucket warm.")
    buckets: int | None = Field(default=None, description="Shape buckets that each pod warms.")
    buckets_warm: int | None = Field(default=None, description="Buckets warm in the pod that is furthest behind.")
    artifact_digest: str | None = Field(default=None, description="SHA-256 of the artifact that its pods verified.")
    artifact_uri: str | None = Field(default=None, description="Where its artifact came from.")
    image: str | None = Field(default=None, description="Runtime image that was recorded for it.")
    sandbox: str | None = Field(
        default=None,
        description="How much of the sandbox confines its pods, by their own reports: Full, Partial or None, the least "
        "confined pod counts. The condition Sandboxed names what is missing.",
    )
    parity: str | None = Field(
        default=None,
        description="How the golden answers of its artifact compare with those of its pods: Agrees or Differs. Absent "
        "when the artifact carries none.",
    )
    precision: str | None = Field(
        default=None,
        description="In which its pods keep large weights, by their own reports, where that is not as in the artifact: "
        "BFloat16 or Int8.",
    )
    since: Time | None = Field(default=None, description="When it took its present role.")
    progressing_since: Time | None = Field(
        default=None, description="Present while it lacks ready pods: since when; spec.rollout.progressDeadline counts."
    )
    leaving: bool | None = Field(
        default=None, description="true while its pods are kept only until the routers have let go of it."
    )


class KnobsStatus(StatusModel):
    """The hot fields: what was asked, and who obeys."""

    hash: str | None = Field(default=None, description="Name of the newest set of hot fields.")
    pods: int | None = Field(default=None, description="Live pods.")
    applied: int | None = Field(default=None, description="Live pods that confirmed this set.")
    effective: Opaque | None = Field(
        default=None, description="The values in effect, defaults resolved, such as maxBatch and maxWait."
    )


class AbortStatus(StatusModel):
    """Why a rollout was given up. It stays so until the spec changes."""

    revision: str | None = Field(default=None, description="The revision that was given up.")
    generation: int | None = Field(default=None, description="The generation of the spec that asked for it.")
    reason: str | None = Field(default=None, description="One word for programs.")
    message: str | None = Field(default=None, description="What happened, for people.")
    time: Time | None = Field(default=None, description="When it was given up.")


class RolloutStatus(StatusModel):
    """The change that is under way, or that was given up."""

    revision: str | None = Field(default=None, description="The revision that is being brought up.")
    rung: str | None = Field(default=None, description="The rule that decided what is being done now.")
    weight: int | None = Field(default=None, description="Per cent of requests that the new version should answer now.")
    since: Time | None = Field(default=None, description="When the rollout began.")
    abort: AbortStatus | None = Field(default=None, description="Present once the rollout was given up, and why.")


class RecommendationStatus(StatusModel):
    """What the latest minutes of load say of the knobs. Advice: nothing changes by itself."""

    reason: str | None = Field(
        default=None,
        description="UnderBatched: the device works more than it needs to, because runs are small. Saturated: more "
        "comes than the pods can do. Balanced: nothing to do.",
    )
    max_batch: int | None = Field(default=None, description="What to set spec.batching.maxBatch to; absent: leave it.")
    max_wait: str | None = Field(default=None, description="What to set spec.batching.maxWait to; absent: leave it.")
    message: str | None = Field(default=None, description="Why, with the figures it rests on.")


class GenerationStatus(StatusModel):
    """Room for sequences in a pod of the stable version: the one with the least. Lengths are in tokens."""

    blocks: int | None = Field(default=None, description="Blocks of the cache for keys and values.")
    block_tokens: int | None = Field(default=None, description="Tokens of one block.")
    bytes_per_token: int | None = Field(default=None, description="Keys and values of one token, in all layers.")
    cache_bytes: int | None = Field(default=None, description="Memory of the cache.")
    max_length: int | None = Field(default=None, description="Tokens that a sequence may have, answer included.")
    sequences: int | None = Field(default=None, description="Sequences of that length that fit at the same time.")
    length_p99: int | None = Field(default=None, description="99 of 100 of the latest sequences were no longer.")
    sequences_p99: int | None = Field(
        default=None, description="Sequences of that usual length that fit at the same time."
    )
    recommended_max_length: int | None = Field(
        default=None, description="What to set spec.generation.maxLength to; absent: leave it."
    )
    kernels: str | None = Field(default=None, description="What computes attention, such as native-avx512.")


class FailureStatus(StatusModel):
    """The newest failure of a pod, kept after the pod is gone."""

    revision: str | None = Field(default=None, description="The revision of the pod.")
    pod: str | None = Field(default=None, description="Name of the pod.")
    container: str | None = Field(default=None, description="prepare or serve.")
    reason: str | None = Field(default=None, description="One word for programs, such as DigestMismatch.")
    message: str | None = Field(default=None, description="The pod's own words.")
    field: str | None = Field(default=None, description="The field of the spec that is at fault.")
    time: Time | None = Field(default=None, description="When it was seen.")


class Condition(StatusModel):
    """One aspect of the ModelDeployment, in the usual form of Kubernetes."""

    type: str = Field(
        description="Accepted, ArtifactVerified, Ready, UpToDate, KnobsApplied, Routed, RollbackReady, Sandboxed or "
        "PaddingProven; Reconciling and Stalled are present only while they are true."
    )
    status: str = Field(description="True, False or Unknown.")
    reason: str | None = Field(default=None, description="One word for programs: why.")
    message: str | None = Field(default=None, description="For people: what is so, and what to do.")
    observed_generation: int | None = Field(default=None, description="The generation of the spec this speaks of.")
    last_transition_time: Time | None = Field(default=None, description="When status last changed.")


class Status(StatusModel):
    """What is so. Wait for UpToDate."""

    observed_generation: int | None = Field(
        default=None, description="The newest generation of the spec that the operator acted on."
    )
    url: str | None = Field(default=None, description="Where clients in the cluster send requests.")
    revisions: list[RevisionStatus] | None = Field(
        default=None, json_schema_extra=keyed_by("name"), description="The versions that are live."
    )
    traffic_verified_time: Time | None = Field(
        default=None, description="When every router that serves was seen to use the present weights."
    )
    knobs: KnobsStatus | None = Field(default=None, description="The hot fields: what was asked, and who obeys.")
    rollout: RolloutStatus | None = Field(default=None, description="The change that is under way, or was given up.")
    recommendation: RecommendationStatus | None = Field(
        default=None,
        description="What the latest minutes of load say of the knobs of the stable version. "
        "It stays until there is another.",
    )
    generation: GenerationStatus | None = Field(
        default=None,
        description="Room for sequences, when text is generated. It is written again only when it changes.",
    )
    last_failure: FailureStatus | None = Field(default=None, description="The newest failure of a pod.")
    conditions: list[Condition] | None = Field(
        default=None,
        json_schema_extra=keyed_by("type"),
        description="What is true, what is not, and why; wait for UpToDate.",
    )
