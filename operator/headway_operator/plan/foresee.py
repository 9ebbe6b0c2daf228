"""What can be known of a revision before a pod of it is made: whether a decoder has room for one sequence.

The pods that serve have measured the same artifact: bytes of its weights, of one run, and of the keys and values of a
token. With these, a smaller memory limit or a longer `maxLength` is refused by arithmetic, and no node is asked.
"""

from collections.abc import Mapping

from headway_api.conditions import ConditionType, Reason
from headway_api.names import SERVE_CONTAINER
from headway_api.podconfig import GenerationReport
from headway_api.units import parse_size

from headway_operator.observed import Observed, Record
from headway_operator.plan.refusal import Failure

FIELD_MEMORY = "spec.template.resources.limits.memory"
FIELD_CACHE = "spec.generation.cacheBytes"
_ELEMENT_BYTES = {"Float32": 4, "BFloat16": 2}


def will_not_fit(observed: Observed, records: Mapping[str, Record], revision: str) -> Failure | None:
    """Why a decoder cannot run under this revision's limits, by what other revisions of the same artifact reported."""
    record, workload = records.get(revision), observed.workloads.get(revision)
    if record is None or record.role is not None or (workload and workload.replicas):
        return None  # its own pods know better, or have served
    measured = _measured(observed, records, record)
    return None if measured is None else _refusal(record, *measured)


def _measured(
    observed: Observed, records: Mapping[str, Record], record: Record
) -> tuple[GenerationReport, Record] | None:
    """A report about the same weights, and the revision that it is of."""
    for pod in sorted(observed.pods, key=lambda pod: pod.name):
        other = records.get(pod.revision)
        if other and pod.report and pod.report.generation and _weights_of(other) == _weights_of(record):
            return pod.report.generation, other
    return None


def _weights_of(record: Record) -> tuple[object, ...]:
    cold = record.cold
    artifact = cold["artifact"]
    return artifact["uri"], artifact.get("program"), cold["device"], cold.get("precision")


def _refusal(record: Record, report: GenerationReport, other: Record) -> Failure | None:
    asked = record.cold.get("generation", {})
    per_token = report.bytes_per_token * _element_bytes(record) // _element_bytes(other)
    block = per_token * report.block_tokens
    tokens = asked.get("maxLength", 2)
    least = (-(-tokens // report.block_tokens) + 1) * block  # one block belongs to nobody
    text = asked.get("cacheBytes")
    cache = None if text is None else parse_size(text, FIELD_CACHE)
    words = f"a sequence of {tokens} tokens needs {_mib(least)} of keys and values ({per_token} bytes a token)"
    if cache is not None and cache < least:
        return _failure(FIELD_CACHE, f"{words}, and {FIELD_CACHE} is {text}; raise it, or lower maxLength")
    limit = _memory_limit(record)
    need = report.weights_bytes + report.step_bytes + (least if cache is None else cache)
    if limit is None or record.cold["device"]["kind"] != "cpu" or need <= limit:
        return None
    return _failure(
        FIELD_MEMORY,
        f"the weights need {_mib(report.weights_bytes)}, one run {_mib(report.step_bytes)}, and "
        f"{words if cache is None else f'cacheBytes is {text}'}: {_mib(need)}, and the limit is {_mib(limit)}; raise "
        f"{FIELD_MEMORY} to at least that, or write a smaller {'cacheBytes' if cache else 'maxLength'}",
    )


def _failure(field: str, message: str) -> Failure:
    return Failure(ConditionType.ACCEPTED, Reason.WILL_NOT_FIT, f"No pod is made, because {message}", field=field)


def _element_bytes(record: Record) -> int:
    return _ELEMENT_BYTES[record.cold.get("generation", {}).get("cacheType", "Float32")]


def _memory_limit(record: Record) -> int | None:
    containers = record.pod_template["spec"].get("containers", [])
    limits = [each.get("resources", {}).get("limits", {}) for each in containers if each["name"] == SERVE_CONTAINER]
    text = next((limit.get("memory") for limit in limits), None)
    try:
        return None if text is None else parse_size(str(text))
    except ValueError:
        return None  # a spelling of Kubernetes' own (1e9): the pod will see


def _mib(count: int) -> str:
    return f"{-(-count // 2**20):,} MiB"
