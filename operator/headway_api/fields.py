"""The kinds of fields that `spec` is made of: names, durations, sizes, quantities, and the model they are fields of.

Every string, list and map has an upper bound: the API server estimates the cost of the CEL rules from them.
"""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from headway_api.units import DURATION_PATTERN, MAX_DURATION_LENGTH, SIZE_PATTERN

URI_PATTERN = r"^(s3|gs|az|https?|file)://[^\s]+$"
DIGEST_PATTERN = r"^sha256:[0-9a-f]{64}$"
DIMENSION_PATTERN = r"^[A-Za-z_][A-Za-z0-9_.]*$"
QUALIFIED_NAME_PATTERN = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
LABEL_VALUE_PATTERN = r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$"
QUANTITY_PATTERN = r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|e[0-9]+)?$"

MAX_DIMENSIONS = 8
MAX_BUCKETS = 64  # combinations of the sizes of all dimensions

Uri = Annotated[str, Field(pattern=URI_PATTERN, max_length=1024)]
Digest = Annotated[str, Field(pattern=DIGEST_PATTERN, max_length=71)]
ProgramName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$", max_length=64)]
Duration = Annotated[str, Field(pattern=DURATION_PATTERN, max_length=MAX_DURATION_LENGTH)]
Size = Annotated[str, Field(pattern=SIZE_PATTERN, max_length=24)]
DimensionName = Annotated[str, Field(pattern=DIMENSION_PATTERN, max_length=64)]
BucketSizes = Annotated[list[Annotated[int, Field(ge=1, le=1_048_576)]], Field(min_length=1, max_length=16)]
Axis = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.]*\.[0-9]+$", max_length=128)]
DnsName = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=253)]
QualifiedName = Annotated[str, Field(pattern=QUALIFIED_NAME_PATTERN, max_length=317)]
LabelValue = Annotated[str, Field(pattern=LABEL_VALUE_PATTERN, max_length=63)]
Quantity = Annotated[str, Field(pattern=QUANTITY_PATTERN, max_length=32)]
Opaque = Annotated[dict[str, Any], Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})]


class ApiModel(BaseModel):
    """Frozen, camelCase on the wire, unknown fields refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)


def keyed_by(name: str) -> dict[str, Any]:
    """A list whose entries are told apart by one field: a second entry of that name is refused, and two owners of the
    list (server-side apply) each keep their own entries."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [name]}
