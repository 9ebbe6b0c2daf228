"""The `spec` of a ModelDeployment, as a user writes it.

A field is here only when it is honoured. *Cold* fields make a new revision, hence new pods (`revision.cold_fields`);
all others are *hot* and never restart anything. Schema defaults exist for hot scalar fields only: a cold default added
later would read as a changed spec on every stored object. The CRD is rendered from these models (`crd`), descriptions
included; what a type cannot say is a CEL rule (`rules`), so that the API server refuses what cannot be honoured and no
webhook is needed.
"""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from headway_api.fields import (
    MAX_DIMENSIONS,
    ApiModel,
    Axis,
    BucketSizes,
    Digest,
    DimensionName,
    DnsName,
    Duration,
    ProgramName,
    Size,
    Uri,
)
from headway_api.podtemplate import Template

Tolerance = Annotated[float, Field(ge=0, le=1000)]


class DeviceKind(StrEnum):
    """What a pod computes on."""

    CPU = "cpu"
    GPU = "gpu"


class Keep(StrEnum):
    """How the previous version is kept for a rollback."""

    WARM = "Warm"
    NONE = "None"


class TrustLevel(StrEnum):
    """What a pod demands of an artifact beyond its own inspection."""

    NONE = "None"
    SIGNATURE = "Signature"


class OnMismatch(StrEnum):
    """What a pod does when a golden answer is not reproduced."""

    BLOCK = "Block"
    WARN = "Warn"


class Padding(StrEnum):
    """Whether requests of different sizes may share a run, the smaller ones filled up."""

    AUTO = "Auto"
    NEVER = "Never"
    TRUSTED = "Trusted"


class Oversize(StrEnum):
    """What happens to a request beyond the largest bucket."""

    REJECT = "Reject"
    RUN_UNPADDED = "RunUnpadded"


class BatchingPolicy(StrEnum):
    """Which of the two batchers runs a program."""

    DYNAMIC = "Dynamic"
    CONTINUOUS = "Continuous"


class CacheType(StrEnum):
    """Element type of cached keys and values."""

    FLOAT32 = "Float32"
    BFLOAT16 = "BFloat16"


class Precision(StrEnum):
    """Element type in which large weights are kept and multiplied."""

    EXPORTED = "Exported"
    BFLOAT16 = "BFloat16"
    INT8 = "Int8"


class SpeculationMethod(StrEnum):
    """Who proposes the tokens that the program then checks, several in one run."""

    PROMPT_LOOKUP = "PromptLookup"
    DRAFT = "Draft"


class NonFinite(StrEnum):
    """What happens to an answer that holds NaN or infinity."""

    ALLOW = "Allow"
    REJECT = "Reject"


class Credentials(ApiModel):
    """Where the prepare container finds the keys of the object store."""

    secret_name: DnsName = Field(
        description="Name of a Secret in this namespace. Its keys are the object store's usual variables, such as "
        "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and AWS_ENDPOINT_URL. "
        "It is mounted into the prepare container only."
    )


class Keys(ApiModel):
    """Public keys, in a Secret of this namespace."""

    secret_name: DnsName = Field(
        description="Name of a Secret in this namespace. Each of its values is a public key in PEM (Ed25519 or ECDSA); "
        "a signature by any of them counts, so that keys can be rotated. It is mounted into the prepare container "
        "only."
    )


class Trust(ApiModel):
    """Whose artifacts are served. Cold."""

    require: TrustLevel | None = Field(
        default=None,
        description="Signature: a pod refuses an artifact that no key of publicKeys or builderKeys has signed. None: a "
        "signature is not asked for. Without it: None. Cold.",
    )
    public_keys: Keys | None = Field(default=None, description="Keys of those who may sign exported programs. Cold.")
    builder_keys: Keys | None = Field(
        default=None,
        description="Keys of those who may sign compiled programs (`headway compile`), which hold native code. Without "
        "it: compiled programs are refused. Cold.",
    )


class Artifact(ApiModel):
    """An exported program (`.pt2`). Cold, except for `digest`."""

    uri: Uri = Field(
        description="Where the exported program is: s3://, gs://, az://, https://, http:// or file://. Cold.",
    )
    digest: Digest | None = Field(
        default=None,
        description="SHA-256 of the file, as sha256:<64 hexadecimal digits>; a file with another digest is refused. "
        "Without it, the first pod's finding is pinned for all later pods.",
    )
    credentials: Credentials | None = Field(
        default=None, description="Keys for the object store. Without it: read anonymously. Cold."
    )
    program: ProgramName | None = Field(
        default=None,
        description="Which program of an archive that holds several. Without it: the only one, or the one named "
        "model. Cold.",
    )
    trust: Trust | None = Field(
        default=None, description="Whose artifacts are served, the candidate's included. Without it: anyone's. Cold."
    )


class ArtifactOverride(ApiModel):
    """The candidate's artifact: what it does not say is taken from `spec.artifact`, except the digest."""

    uri: Uri | None = Field(
        default=None, description="Where the candidate's program is. Without it: as in spec.artifact."
    )
    digest: Digest | None = Field(
        default=None, description="SHA-256 of the candidate's file. Never taken from spec.artifact."
    )
    credentials: Credentials | None = Field(
        default=None, description="Keys for the object store. Without it: as in spec.artifact."
    )
    program: ProgramName | None = Field(
        default=None, description="Which program of the archive. Without it: as in spec.artifact."
    )


class Device(ApiModel):
    """What a pod computes on. Cold."""

    kind: DeviceKind = Field(description="cpu or gpu. Cold.")
    resource_name: str | None = Field(
        default=None,
        pattern=r"^[a-z0-9.-]+/[a-z0-9.-]+$",
        max_length=128,
        description="With gpu: the extended resource that a pod asks one of. Without it: nvidia.com/gpu. Cold.",
    )


class Queue(ApiModel):
    """Bounds of the waiting line in each pod. Hot."""

    capacity: int = Field(
        default=512, ge=1, le=65_536, description="Rows that may wait; more are refused with 429. Hot."
    )
    bytes: Size = Field(
        default="256Mi", description="Bytes of decoded inputs that may wait; more are refused with 429. Hot."
    )
    timeout: Duration = Field(
        default="2s", description="How long a request may wait before it is answered 504, from 1ms to 30s. Hot."
    )


class Cache(ApiModel):
    """Answers that a pod keeps. Hot."""

    bytes: Size = Field(
        description="Bytes of answers that each pod keeps, the least recently used go first; 0 keeps none. Requests "
        "with equal inputs are answered alike, and those that come at the same time are computed once. Hot."
    )


class Batching(ApiModel):
    """How requests are run together."""

    policy: BatchingPolicy | None = Field(
        default=None,
        description="Dynamic: a request is one row or several of one run. Continuous: text generation, many sequences "
        "at a time, which join and leave between two steps. Without it: Continuous for an artifact that was exported "
        "with --task generate, else Dynamic. One that the artifact cannot do is refused. Cold.",
    )
    max_batch: int | None = Field(
        default=None,
        ge=1,
        le=65_536,
        description="Most rows in one run; with Continuous, most sequences (without it: 64). Without it: the largest "
        "batch bucket. A value that the program cannot "
        "honour is clamped, and the condition KnobsApplied says to what. Hot.",
    )
    max_wait: Duration = Field(
        default="2ms",
        description="Longest time a request waits for company; 0ms never waits; at most 30s. With "
        "Continuous nobody waits for company, and KnobsApplied says so if it is set. Hot.",
    )
    queue: Queue | None = Field(default=None, description="Bounds of the waiting line in each pod. Hot.")
    latency_target: Duration | None = Field(
        default=None,
        description="How long one run may take, at least 1ms: the rows of a run are kept to the largest number whose "
        "measured cost fits. Without it: maxBatch alone rules. Hot.",
    )
    cache: Cache | None = Field(default=None, description="Answers that a pod keeps. Without it: none. Hot.")
    non_finite: NonFinite = Field(
        default=NonFinite.ALLOW,
        description="Reject: a request whose answer holds NaN or infinity is answered with an error (its neighbours "
        "are not). Allow: it is answered as computed. Both are counted. Hot.",
    )
    shape_buckets: dict[DimensionName, BucketSizes] | None = Field(
        default=None,
        max_length=MAX_DIMENSIONS,
        description="Dimension name -> sizes, such as batch: [1, 4, 8], ascending. Every combination (at most 64) is "
        "warmed before a pod is ready; the last size is the largest that is admitted. Without it: powers of two in the "
        "program's range, up to 32 for batch and 512 for the others. Cold.",
    )
    dimensions: dict[DimensionName, Axis] | None = Field(
        default=None,
        max_length=MAX_DIMENSIONS,
        description="Names for the dimensions of a program that carries none: name -> <input>.<axis>, "
        "such as sequence: ids.1. Cold.",
    )
    padding: Padding | None = Field(
        default=None,
        description="Auto: requests of different sizes share a run along the dimensions for which the pod has shown, "
        "before it is ready, that padding changes no answer; the condition PaddingProven says which. Never: only equal "
        "sizes share a run. Trusted: as Auto, without the trial. Without it: Auto. Cold.",
    )
    oversize: Oversize | None = Field(
        default=None,
        description="Reject: a request beyond the largest bucket is answered 400. RunUnpadded: it runs alone, at its "
        "own size, which was not warmed, as far as the program's range goes. Without it: Reject. Cold.",
    )
    instances: int | None = Field(
        default=None,
        ge=1,
        le=64,
        description="Runs at a time in each pod, on the same weights; the CPU limit is shared among them. Without it: "
        "1. Cold.",
    )


class Speculation(ApiModel):
    """Several tokens of a sequence in one run: proposed by somebody cheap, checked by the program. Exact. Cold."""

    method: SpeculationMethod = Field(
        description="PromptLookup: what followed the same words earlier in the sequence. Draft: a smaller program of "
        "the same artifact, with the same tokenizer. Cold."
    )
    tokens: int | None = Field(default=None, ge=1, le=16, description="Tokens proposed at a time. Without it: 4. Cold.")
    program: ProgramName | None = Field(
        default=None, description="With Draft: which program of the artifact. Without it: draft. Cold."
    )


class Generation(ApiModel):
    """Text generation, with `batching.policy: Continuous`."""

    max_length: int | None = Field(
        default=None,
        ge=2,
        le=10_000_000,
        description="Tokens of one sequence at most, prompt and answer together. Without it: what the program was made "
        "for, or what fits into the cache, whichever is less. Cold.",
    )
    cache_bytes: Size | None = Field(
        default=None,
        description="Memory for keys and values. Without it: what the weights and one run leave of the pod's memory "
        "limit. Cold.",
    )
    cache_type: CacheType | None = Field(
        default=None, description="Element type of keys and values. Without it: Float32. Cold."
    )
    speculation: Speculation | None = Field(
        default=None, description="Several tokens of a sequence in one run. Without it: one at a time. Cold."
    )
    step_tokens: int = Field(
        default=256,
        ge=1,
        le=65_536,
        description="Tokens in one run at most: a long prompt is read in pieces of it, so that those who are being "
        "answered do not wait. Hot.",
    )
    prefix_cache: bool = Field(
        default=True, description="Keys and values of prompts are kept for later ones that begin alike. Hot."
    )


class Limits(ApiModel):
    """Bounds of a single request. Hot."""

    request_bytes: Size = Field(
        default="64Mi",
        description="Bytes of one request, after decompression, over HTTP and gRPC; more is answered 413 "
        "(RESOURCE_EXHAUSTED). At most 1Gi. Hot.",
    )


class Verification(ApiModel):
    """Golden answers that the artifact carries are computed again before a pod is ready. Cold.

    With `spec.precision` BFloat16 or Int8 the limits of that precision rule instead.
    """

    on_mismatch: OnMismatch | None = Field(
        default=None,
        description="Block: a pod whose answers differ never becomes ready. Warn: it does, and its report and its log "
        "say so, for golden answers that were computed on other hardware. Without it: Block. Cold.",
    )
    rtol: Tolerance | None = Field(
        default=None,
        description="Relative tolerance: answers agree within atol + rtol * |golden|. Without it: the artifact's own, "
        "else 1e-3 (float16: 4e-3, bfloat16: 1.6e-2). Cold.",
    )
    atol: Tolerance | None = Field(
        default=None, description="Absolute tolerance. Without it: the artifact's own, else 1e-5. Cold."
    )


class Canary(ApiModel):
    """An explicit second version, served beside the stable one. Its artifact is a revision of its own."""

    artifact: ArtifactOverride = Field(
        description="The candidate's artifact, merged over spec.artifact except for the digest."
    )
    weight: int = Field(
        ge=0,
        le=100,
        description="Per cent of requests that the candidate answers. With 0 it can be reached by header only. Hot.",
    )


class Rollout(ApiModel):
    """How a change of a cold field reaches users. Hot."""

    progress_deadline: Duration = Field(
        default="15m",
        description="How long a new version may take to become ready before the rollout is aborted, at least 1s; "
        "the old version goes on serving. Hot.",
    )


class Rollback(ApiModel):
    """What is kept of the version that served before. Hot."""

    keep: Keep = Field(
        default=Keep.WARM,
        description="Warm: its pods stay, and a revert takes traffic within seconds. None: its pods go. Hot.",
    )
    warm_replicas: int = Field(
        default=1,
        ge=1,
        le=1000,
        description="Pods of it that stay warm, at most replicas. A revert gives it at once the share of the requests "
        "that they can carry. Hot.",
    )
    keep_for: Duration = Field(default="24h", description="How long they stay. Hot.")
    history: int = Field(
        default=5, ge=1, le=50, description="Revisions whose record is kept, besides those that serve. Hot."
    )


class Spec(ApiModel):
    """What should be served, and how."""

    artifact: Artifact = Field(description="The exported program to serve. Cold.")
    device: Device = Field(description="What the pods compute on. Cold.")
    replicas: int | None = Field(
        default=None, ge=1, le=1000, description="Pods of the stable version. Without it: 1. Hot."
    )
    precision: Precision | None = Field(
        default=None,
        description="In which large weights are kept and multiplied. Exported: as they are in the artifact. BFloat16 "
        "and Int8 are made when a pod loads, take a half and a quarter of the memory of float32 and less time, and are "
        "used only if the artifact's golden samples or prompts are still answered closely enough; otherwise the pod is "
        "refused. Without it: Exported. Cold.",
    )
    batching: Batching | None = Field(default=None, description="How requests are run together.")
    generation: Generation | None = Field(default=None, description="Text generation.")
    limits: Limits | None = Field(default=None, description="Bounds of a single request. Hot.")
    verification: Verification | None = Field(
        default=None, description="How golden answers that the artifact carries are compared. Cold."
    )
    canary: Canary | None = Field(
        default=None, description="A second version that answers a part of the requests. Without it: none. Hot."
    )
    rollout: Rollout | None = Field(default=None, description="How a change of a cold field reaches users. Hot.")
    rollback: Rollback | None = Field(default=None, description="What is kept of the version that served before. Hot.")
    template: Template | None = Field(default=None, description="What the pods need from the cluster. Cold.")
