"""The `spec` of a ModelDeployment, as a user writes it.

A field is here only when it is honoured. *Cold* fields make a new revision, hence new pods (`revision.COLD`); all others are
*hot* and never restart anything. Schema defaults exist for hot scalar fields only: a cold default added later would read as a
changed spec on every stored object. The CRD is rendered from these models (`crd`), descriptions included; rules across fields
are CEL, in `crd`, so that the API server refuses what cannot be honoured and no webhook is needed.
"""

from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from headway_api.units import DURATION_PATTERN, SIZE_PATTERN

Duration = Annotated[str, Field(pattern=DURATION_PATTERN, max_length=32)]
Size = Annotated[str, Field(pattern=SIZE_PATTERN, max_length=24)]
DimensionName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.]*$", max_length=64)]
BucketSizes = Annotated[list[Annotated[int, Field(ge=1, le=1_048_576)]], Field(min_length=1, max_length=16)]
DnsLabel = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=253)]
Opaque = Annotated[dict[str, Any], Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})]


class ApiModel(BaseModel):
    """Frozen, camelCase on the wire, unknown fields refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)


class DeviceKind(StrEnum):
    """What a pod computes on."""

    CPU = "cpu"
    GPU = "gpu"


class Keep(StrEnum):
    """How the previous version is kept for a rollback."""

    WARM = "Warm"
    NONE = "None"


class Credentials(ApiModel):
    """Where the prepare container finds the keys of the object store."""

    secret_name: DnsLabel = Field(
        description="Name of a Secret in this namespace. Its keys are the object store's usual variables, such as "
        "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and AWS_ENDPOINT_URL. It is mounted into the prepare container only."
    )


URI_PATTERN = r"^(s3|gs|az|https?|file)://[^\s]+$"
DIGEST_PATTERN = r"^sha256:[0-9a-f]{64}$"


class Artifact(ApiModel):
    """An exported program (`.pt2`). Cold, except for `digest`."""

    uri: str = Field(
        pattern=URI_PATTERN,
        max_length=1024,
        description="Where the exported program is: s3://, gs://, az://, https://, http:// or file://. Cold.",
    )
    digest: str | None = Field(
        default=None,
        pattern=DIGEST_PATTERN,
        max_length=71,
        description="SHA-256 of the file, as sha256:<64 hexadecimal digits>. Without it, the first pod's finding is pinned for all later pods.",
    )
    credentials: Credentials | None = Field(default=None, description="Keys for the object store. Cold.")


class ArtifactOverride(ApiModel):
    """The candidate's artifact: what it does not say is taken from `spec.artifact`, except the digest."""

    uri: str | None = Field(
        default=None, pattern=URI_PATTERN, max_length=1024, description="Where the candidate's program is."
    )
    digest: str | None = Field(
        default=None,
        pattern=DIGEST_PATTERN,
        max_length=71,
        description="SHA-256 of the candidate's file. Never taken from spec.artifact.",
    )
    credentials: Credentials | None = Field(
        default=None, description="Keys for the object store, if others than the stable's."
    )


class Device(ApiModel):
    """What a pod computes on. Cold."""

    kind: DeviceKind = Field(description="cpu or gpu.")
    resource_name: str | None = Field(
        default=None,
        pattern=r"^[a-z0-9.-]+/[a-z0-9.-]+$",
        max_length=128,
        description="With gpu: the extended resource that a pod asks one of. Without it: nvidia.com/gpu.",
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
        default="2s", description="How long a request may wait before it is answered 504; at most 30s. Hot."
    )


class Batching(ApiModel):
    """How requests are run together."""

    max_batch: int | None = Field(
        default=None,
        ge=1,
        le=65_536,
        description="Most rows in one run. Hot. Without it: the largest batch bucket. A larger value is clamped, and KnobsApplied says so.",
    )
    max_wait: Duration = Field(
        default="2ms", description="Longest time a request waits for company; 0ms never waits; at most 30s. Hot."
    )
    queue: Queue | None = Field(default=None, description="Bounds of the waiting line in each pod. Hot.")
    shape_buckets: dict[DimensionName, BucketSizes] | None = Field(
        default=None,
        max_length=8,
        description="Sizes of each dimension that are warmed before a pod is ready, and the largest that is admitted; ascending. Cold. "
        "Without it: powers of two in the program's range, up to 32 for batch and 512 for the others.",
    )
    dimensions: (
        dict[DimensionName, Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.]*\.[0-9]+$", max_length=128)]] | None
    ) = Field(
        default=None,
        max_length=8,
        description="Names for the dimensions of a program that carries none: name -> <input>.<axis>, such as sequence: ids.1. Cold.",
    )


class Canary(ApiModel):
    """An explicit second version, served beside the stable one. Hot; the artifact it names is a revision of its own."""

    artifact: ArtifactOverride = Field(
        description="The candidate's artifact, merged over spec.artifact except for the digest."
    )
    weight: int = Field(
        ge=0,
        le=100,
        description="Per cent of requests that the candidate answers. Hot. With 0 it can be reached by header only.",
    )


class Rollout(ApiModel):
    """How a change of a cold field reaches users."""

    progress_deadline: Duration = Field(
        default="15m",
        description="How long a new version may take to become ready before the rollout is aborted; the old one goes on serving. Hot.",
    )


class Rollback(ApiModel):
    """What is kept of the version that served before. Hot."""

    keep: Keep = Field(
        default=Keep.WARM,
        description="Warm: its pods stay, and a revert takes traffic within seconds. None: its pods go. Hot.",
    )
    warm_replicas: int = Field(
        default=1, ge=1, le=1000, description="Pods of the previous version that stay warm. Hot."
    )
    keep_for: Duration = Field(default="24h", description="How long they stay. Hot.")
    history: int = Field(
        default=5, ge=1, le=50, description="Revisions whose record is kept, besides those that serve. Hot."
    )


class EnvVar(ApiModel):
    """An environment variable of the serve container."""

    name: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=128)
    value: Annotated[str, Field(max_length=4096)] | None = None
    value_from: Opaque | None = Field(
        default=None, description="As in a container: secretKeyRef, configMapKeyRef, fieldRef."
    )


class Resources(ApiModel):
    """As in a container."""

    requests: dict[str, int | str] | None = Field(default=None, max_length=16)
    limits: dict[str, int | str] | None = Field(default=None, max_length=16)


class Toleration(ApiModel):
    """As in a pod."""

    key: Annotated[str, Field(max_length=316)] | None = None
    operator: Annotated[str, Field(pattern=r"^(Exists|Equal)$")] | None = None
    value: Annotated[str, Field(max_length=63)] | None = None
    effect: Annotated[str, Field(pattern=r"^(NoSchedule|PreferNoSchedule|NoExecute)$")] | None = None
    toleration_seconds: int | None = None


class LocalObjectReference(ApiModel):
    """A name in this namespace."""

    name: DnsLabel


class Template(ApiModel):
    """What the pods need from the cluster. All of it is cold."""

    resources: Resources | None = Field(default=None, description="Requests and limits of the serve container.")
    env: Annotated[list[EnvVar], Field(max_length=64)] | None = Field(
        default=None, description="More environment of the serve container."
    )
    node_selector: Annotated[dict[str, Annotated[str, Field(max_length=63)]], Field(max_length=32)] | None = None
    tolerations: Annotated[list[Toleration], Field(max_length=32)] | None = None
    affinity: Opaque | None = Field(default=None, description="As in a pod.")
    service_account_name: DnsLabel | None = Field(
        default=None, description="Without it: one with no token and no rights."
    )
    image_pull_secrets: Annotated[list[LocalObjectReference], Field(max_length=16)] | None = None
    pod_labels: Annotated[dict[str, Annotated[str, Field(max_length=63)]], Field(max_length=32)] | None = None
    pod_annotations: Annotated[dict[str, Annotated[str, Field(max_length=4096)]], Field(max_length=32)] | None = None
    priority_class_name: DnsLabel | None = None
    drain_timeout: Duration | None = Field(
        default=None,
        description="How long a pod that ends may take to answer what it has admitted. Without it: 60s; at most 1h.",
    )
    runtime_image: Annotated[str, Field(min_length=1, max_length=512)] | None = Field(
        default=None,
        description="Image of the pods. Without it: the operator's default when the revision was first seen, and then always that one.",
    )


class Spec(ApiModel):
    """What should be served, and how."""

    artifact: Artifact = Field(description="The exported program to serve. Cold.")
    device: Device = Field(description="What the pods compute on. Cold.")
    replicas: int | None = Field(
        default=None, ge=1, le=1000, description="Pods of the stable version. Hot. Without it: 1."
    )
    batching: Batching | None = Field(default=None, description="How requests are run together.")
    canary: Canary | None = Field(default=None, description="A second version that answers a part of the requests.")
    rollout: Rollout | None = Field(default=None, description="How a change of a cold field reaches users.")
    rollback: Rollback | None = Field(default=None, description="What is kept of the version that served before.")
    template: Template | None = Field(default=None, description="What the pods need from the cluster. Cold.")
