"""The objects of one live revision."""

from headway_api import names

from headway_operator.desired.meta import metadata, selector
from headway_operator.observed import Object, Record, Resource


def config_map(resource: Resource, record: Record) -> Object:
    """What its pods need to load. The digest is added once, when it is pinned: later pods must find the same."""
    pinned = {names.DIGEST_KEY: record.pin} if record.pin else {}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(resource, record),
        "data": {names.CONFIG_KEY: record.config, **pinned},
    }


def headless_service(resource: Resource, record: Record) -> Object:
    """The addresses of its pods, for the router, which checks by itself which of them are ready.

    Also those that are not ready: a router learns of a pod as late as DNS caches live (30 s are usual), so it should
    hear of it while it still loads; and of one that drains as long as that one still answers.
    """
    grpc = [_port("grpc", names.GRPC_PORT)] if record.serves_grpc else []
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(resource, record),
        "spec": {
            "clusterIP": "None",
            "ports": [_port("http", names.INFERENCE_PORT), *grpc],
            "publishNotReadyAddresses": True,
            "selector": selector(resource.name, record.name),
        },
    }


def disruption_budget(resource: Resource, record: Record) -> Object:
    """One per revision, and pods that are not ready may always go: a broken canary must not block a node's drain."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": _metadata(resource, record),
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": selector(resource.name, record.name)},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }


def deployment(resource: Resource, record: Record, replicas: int) -> Object:
    """Its pods, from the recorded template. It never rolls: another template is another revision."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(resource, record),
        "spec": {
            "progressDeadlineSeconds": 86_400,  # progress is judged by spec.rollout.progressDeadline
            "replicas": replicas,
            "revisionHistoryLimit": 1,
            "selector": {"matchLabels": selector(resource.name, record.name)},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": record.pod_template,
        },
    }


def _metadata(resource: Resource, record: Record) -> Object:
    return metadata(resource, names.revision_object(resource.name, record.name), revision=record.name)


def _port(name: str, number: int) -> Object:
    return {"name": name, "port": number, "targetPort": name, "protocol": "TCP"}
