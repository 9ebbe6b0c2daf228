"""`spec.template`: what the pods need from the cluster, in the shapes that pods have. All of it is cold."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from headway_api.fields import (
    ApiModel,
    DnsName,
    Duration,
    LabelValue,
    Opaque,
    QualifiedName,
    Quantity,
    keyed_by,
)

KeyName = Annotated[str, Field(pattern=r"^[-._a-zA-Z0-9]+$", max_length=253)]


class KeySelector(ApiModel):
    """One key of a Secret or a ConfigMap of this namespace."""

    name: DnsName = Field(description="Name of the Secret or ConfigMap.")
    key: KeyName = Field(description="The key in it.")
    optional: bool | None = Field(default=None, description="true: the pod starts without it, too.")


class FieldSelector(ApiModel):
    """A field of the pod itself."""

    field_path: Annotated[str, Field(max_length=256)] = Field(
        description="Such as metadata.name, spec.nodeName or status.podIP."
    )


class ValueSource(ApiModel):
    """Where the value of an environment variable comes from: one of these."""

    secret_key_ref: KeySelector | None = Field(default=None, description="A key of a Secret.")
    config_map_key_ref: KeySelector | None = Field(default=None, description="A key of a ConfigMap.")
    field_ref: FieldSelector | None = Field(default=None, description="A field of the pod.")


class EnvVar(ApiModel):
    """An environment variable of the serve container."""

    name: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=128, description="Name of the variable.")
    value: Annotated[str, Field(max_length=4096)] | None = Field(default=None, description="Its value, as it is.")
    value_from: ValueSource | None = Field(default=None, description="Where its value comes from, instead of value.")


class Resources(ApiModel):
    """As in a container."""

    requests: dict[QualifiedName, int | Quantity] | None = Field(
        default=None,
        max_length=16,
        description="What a node must have free for the pod, such as cpu: 500m, memory: 1Gi.",
    )
    limits: dict[QualifiedName, int | Quantity] | None = Field(
        default=None, max_length=16, description="What the container may use at most, such as memory: 2Gi."
    )


class TolerationOperator(StrEnum):
    """How a toleration compares the value of a taint."""

    EXISTS = "Exists"
    EQUAL = "Equal"


class TaintEffect(StrEnum):
    """What a taint does to pods that do not tolerate it."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


class Toleration(ApiModel):
    """A taint that the pods accept, as in a pod."""

    key: QualifiedName | None = Field(
        default=None, description="Key of the taint. Without it: every key (with Exists)."
    )
    operator: TolerationOperator | None = Field(default=None, description="Exists or Equal. Without it: Equal.")
    value: LabelValue | None = Field(default=None, description="Value of the taint, with Equal.")
    effect: TaintEffect | None = Field(
        default=None, description="NoSchedule, PreferNoSchedule or NoExecute. Without it: all."
    )
    toleration_seconds: int | None = Field(
        default=None, description="With NoExecute: how long the pods stay on the node. Without it: for ever."
    )


class Sandbox(StrEnum):
    """What a pod does when its node's kernel lacks a part of the sandbox."""

    REQUIRE = "Require"
    BEST_EFFORT = "BestEffort"


class LocalObjectReference(ApiModel):
    """A name in this namespace."""

    name: DnsName = Field(description="Name of the Secret.")


class Template(ApiModel):
    """What the pods need from the cluster. All of it is cold."""

    resources: Resources | None = Field(
        default=None,
        description="Requests and limits of each of the two containers, prepare and serve. Without it: requests of "
        "cpu: 100m and memory: 512Mi. Cold.",
    )
    env: list[EnvVar] | None = Field(
        default=None,
        max_length=64,
        json_schema_extra=keyed_by("name"),
        description="More environment of the serve container. Cold.",
    )
    node_selector: dict[QualifiedName, LabelValue] | None = Field(
        default=None, max_length=32, description="Labels that a node must carry to run the pods. Cold."
    )
    tolerations: list[Toleration] | None = Field(
        default=None, max_length=32, description="Taints of nodes that the pods accept. Cold."
    )
    affinity: Opaque | None = Field(
        default=None,
        description="Where the pods may and should run, as in a pod: nodeAffinity, podAffinity, podAntiAffinity. Cold.",
    )
    service_account_name: DnsName | None = Field(
        default=None, description="ServiceAccount of the pods. Without it: one with no token and no rights. Cold."
    )
    image_pull_secrets: list[LocalObjectReference] | None = Field(
        default=None,
        max_length=16,
        json_schema_extra=keyed_by("name"),
        description="Secrets of this namespace with which the pods' image is pulled. Cold.",
    )
    pod_labels: dict[QualifiedName, LabelValue] | None = Field(
        default=None, max_length=32, description="More labels of the pods. Cold."
    )
    pod_annotations: dict[QualifiedName, Annotated[str, Field(max_length=4096)]] | None = Field(
        default=None, max_length=32, description="More annotations of the pods. Cold."
    )
    priority_class_name: DnsName | None = Field(default=None, description="PriorityClass of the pods. Cold.")
    sandbox: Sandbox | None = Field(
        default=None,
        description="The serving process gives up files, new processes and outgoing connections before it loads a "
        "program (Landlock and seccomp). Require: on a kernel that lacks a part of that, the pod does not serve. "
        "BestEffort: it serves, and its report says what is missing. Without it: BestEffort. Cold.",
    )
    drain_timeout: Duration | None = Field(
        default=None,
        description="How long a pod that ends may take to answer what it has admitted, from 1s to 1h. "
        "Without it: 60s. Cold.",
    )
    runtime_image: str | None = Field(
        default=None,
        min_length=1,
        max_length=512,
        description="Image of the pods. Without it: the operator's default when the revision was first seen, "
        "and then always that one. Cold.",
    )
