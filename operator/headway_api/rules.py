"""What `spec` must obey beyond its types: CEL rules that the API server evaluates, so that no webhook is needed.

A message says what to write instead. A rule holds when the optional fields it speaks of are absent.
"""

from dataclasses import dataclass

from headway_api.fields import DIMENSION_PATTERN, MAX_BUCKETS, MAX_DIMENSIONS, QUALIFIED_NAME_PATTERN
from headway_api.names import MAX_NAME_LENGTH, PREFIX, ROUTER_NAME

NAME_PATTERN = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"

BATCH_ABOVE_BUCKETS = (
    "maxBatch is above the largest batch bucket, which is the largest run that is ever warmed: write a smaller "
    "maxBatch, or add its size to shapeBuckets.batch"
)
GENERATION_IS_CONTINUOUS = "generation is for batching.policy Continuous: remove it, or write policy: Continuous"
FIELDS_OF_DYNAMIC = (
    "shapeBuckets, dimensions, padding, oversize and instances are for policy Dynamic: a decoder joins sequences "
    "of all lengths without padding; remove them"
)
PROGRAM_IS_THE_DRAFT = "program names the draft: remove it, or write method: Draft"
SIZES_DO_NOT_ASCEND = "write the sizes in ascending order, each one once, such as [1, 4, 8]"

_NO_PATH: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rule:
    """A CEL expression over the value at `path`, where `*` stands for every entry of a list or map.

    `blames` is the field, relative to `path`, that the API server names in its refusal.
    """

    path: tuple[str, ...]
    expression: str
    message: str
    blames: str | None = None


def _duration(*path: str, least: str | None = None, most: str | None = None) -> Rule:
    bounds = [
        *([f"duration(self) >= duration('{least}')"] if least else []),
        *([f"duration(self) <= duration('{most}')"] if most else []),
    ]
    wanted = " and ".join([*([f"at least {least}"] if least else []), *([f"at most {most}"] if most else [])])
    return Rule(("spec", *path), " && ".join(bounds), f"write a duration of {wanted}")


def _keys(*path: str, pattern: str, longest: int, message: str) -> Rule:
    # A raw string: the pattern's backslashes are meant for the regular expression, not for CEL.
    return Rule(("spec", *path), f"self.all(key, key.matches(r'{pattern}') && key.size() <= {longest})", message)


def _ours(*path: str) -> Rule:
    return Rule(
        ("spec", *path),
        f"self.all(key, !key.startsWith('{PREFIX}/') && !key.startsWith('app.kubernetes.io/managed-by'))",
        f"keys that begin with {PREFIX}/ and app.kubernetes.io/managed-by are set by the operator; choose other keys",
    )


_DIMENSION_NAMES = "write dimension names of letters, digits, '_' and '.', at most 64, that do not begin with a digit"
_QUALIFIED_NAMES = (
    "write keys such as team or example.com/team: letters, digits, '-', '_' and '.', after an optional prefix"
)
_COMBINATIONS = " * ".join(f"(sizes.size() > {i} ? sizes[{i}] : 1)" for i in range(MAX_DIMENSIONS))

RULES: tuple[Rule, ...] = (
    Rule(
        _NO_PATH,
        f"self.metadata.name.size() <= {MAX_NAME_LENGTH}",
        f"metadata.name: write a name of at most {MAX_NAME_LENGTH} characters; Services and labels are named after it",
    ),
    Rule(
        _NO_PATH,
        f"self.metadata.name.matches(r'{NAME_PATTERN}')",
        "metadata.name: write a name of lower-case letters, digits and '-' that begins with a letter and does not end "
        "with '-', such as sentiment-2; it becomes the name of a Service",
    ),
    Rule(
        _NO_PATH,
        f"self.metadata.name != '{ROUTER_NAME}'",
        f"metadata.name: {ROUTER_NAME} is the name of the router's own Service; choose another name",
    ),
    Rule(
        ("spec", "device"),
        "self.kind == 'gpu' || !has(self.resourceName)",
        "resourceName is for gpu only: remove it, or write kind: gpu",
        blames=".resourceName",
    ),
    Rule(
        ("spec", "batching"),
        "!has(self.maxBatch) || !has(self.shapeBuckets) || !('batch' in self.shapeBuckets) || "
        "self.maxBatch <= self.shapeBuckets['batch'].max()",
        BATCH_ABOVE_BUCKETS,
        blames=".maxBatch",
    ),
    _duration("batching", "maxWait", most="30s"),
    _duration("batching", "queue", "timeout", least="1ms", most="30s"),
    _duration("batching", "latencyTarget", least="1ms", most="30s"),
    _keys("batching", "shapeBuckets", pattern=DIMENSION_PATTERN, longest=64, message=_DIMENSION_NAMES),
    Rule(
        ("spec", "batching", "shapeBuckets"),
        f"[self.map(name, self[name].size())].all(sizes, {_COMBINATIONS} <= {MAX_BUCKETS})",
        f"the sizes combine to more than {MAX_BUCKETS} buckets, and each one is warmed before a pod is ready: write "
        "fewer sizes",
    ),
    Rule(
        ("spec", "batching", "shapeBuckets", "*"),
        "self.isSorted() && self.all(size, self.exists_one(other, other == size))",
        SIZES_DO_NOT_ASCEND,
    ),
    _keys("batching", "dimensions", pattern=DIMENSION_PATTERN, longest=64, message=_DIMENSION_NAMES),
    Rule(
        ("spec",),
        "!has(self.generation) || !has(self.batching) || !has(self.batching.policy) || "
        "self.batching.policy == 'Continuous'",
        GENERATION_IS_CONTINUOUS,
        blames=".generation",
    ),
    Rule(
        ("spec", "batching"),
        "!has(self.policy) || self.policy != 'Continuous' || (!has(self.shapeBuckets) && !has(self.dimensions) && "
        "!has(self.padding) && !has(self.oversize) && !has(self.instances))",
        FIELDS_OF_DYNAMIC,
        blames=".policy",
    ),
    Rule(
        ("spec", "generation", "speculation"),
        "!has(self.program) || self.method == 'Draft'",
        PROGRAM_IS_THE_DRAFT,
        blames=".program",
    ),
    Rule(
        ("spec", "canary", "artifact"),
        "has(self.uri) || has(self.digest) || has(self.credentials) || has(self.program)",
        "a canary needs an artifact of its own: write its uri, or remove canary",
    ),
    Rule(
        ("spec", "artifact", "trust"),
        "!has(self.require) || self.require != 'Signature' || has(self.publicKeys) || has(self.builderKeys)",
        "require: Signature needs keys to check with: write publicKeys.secretName",
        blames=".require",
    ),
    _duration("rollout", "progressDeadline", least="1s"),
    _keys("template", "resources", "requests", pattern=QUALIFIED_NAME_PATTERN, longest=317, message=_QUALIFIED_NAMES),
    _keys("template", "resources", "limits", pattern=QUALIFIED_NAME_PATTERN, longest=317, message=_QUALIFIED_NAMES),
    Rule(
        ("spec", "template", "env", "*"),
        "!(has(self.value) && has(self.valueFrom))",
        "value and valueFrom exclude each other: remove one of them",
    ),
    Rule(
        ("spec", "template", "env", "*", "valueFrom"),
        "[has(self.secretKeyRef), has(self.configMapKeyRef), has(self.fieldRef)].exists_one(given, given)",
        "write exactly one of secretKeyRef, configMapKeyRef and fieldRef",
    ),
    Rule(
        ("spec", "template", "tolerations", "*"),
        "!has(self.operator) || self.operator != 'Exists' || !has(self.value)",
        "value is compared with operator: Equal only: remove value, or write operator: Equal",
        blames=".value",
    ),
    Rule(
        ("spec", "template", "tolerations", "*"),
        "has(self.key) || (has(self.operator) && self.operator == 'Exists')",
        "write the key of the taint; only with operator: Exists it may be absent, which accepts every taint",
    ),
    _keys("template", "nodeSelector", pattern=QUALIFIED_NAME_PATTERN, longest=317, message=_QUALIFIED_NAMES),
    _keys("template", "podLabels", pattern=QUALIFIED_NAME_PATTERN, longest=317, message=_QUALIFIED_NAMES),
    _ours("template", "podLabels"),
    _keys("template", "podAnnotations", pattern=QUALIFIED_NAME_PATTERN, longest=317, message=_QUALIFIED_NAMES),
    _ours("template", "podAnnotations"),
    _duration("template", "drainTimeout", least="1s", most="1h"),
)
