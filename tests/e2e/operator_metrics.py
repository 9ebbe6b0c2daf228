"""What the operator says of itself: its Prometheus metrics, read through the API server."""

from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.cluster_access import Access

WRITES = {"create", "patch", "delete"}


@dataclass(frozen=True, slots=True)
class Sample:
    """Counts since the operator's start, and its memory now."""

    writes: float
    memory_mb: float


def operator_pod(access: Access, namespace: str) -> str:
    """Name of the one operator pod that runs in the namespace."""
    selector = ("-l", "app.kubernetes.io/name=headway-operator", "--field-selector=status.phase=Running")
    (pod,) = access.items(namespace, "pods", *selector)
    return str(pod["metadata"]["name"])


def sample(access: Access, namespace: str) -> Sample:
    """One reading of the operator that runs in the namespace."""
    path = f"/api/v1/namespaces/{namespace}/pods/{operator_pod(access, namespace)}:8080/proxy/metrics"
    writes = memory = 0.0
    for family in text_string_to_metric_families(access.kubectl("get", "--raw", path)):
        for found in family.samples:
            if found.name == "headway_api_requests_total" and found.labels["verb"] in WRITES:
                writes += found.value
            elif found.name == "process_resident_memory_bytes":
                memory = found.value / 1e6
    return Sample(writes, memory)
