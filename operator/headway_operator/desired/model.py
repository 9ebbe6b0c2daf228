"""The objects that the revisions of a ModelDeployment share."""

from headway_api import names
from headway_api.types import Spec

from headway_operator.desired.knobs import knobs_text
from headway_operator.desired.meta import metadata, selector
from headway_operator.observed import Object, Resource


def knobs_config_map(resource: Resource, spec: Spec) -> Object:
    """The hot fields, mounted in every pod of every revision."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(resource, names.knobs_object(resource.name)),
        "data": {names.KNOBS_KEY: knobs_text(spec)},
    }


def service_account(resource: Resource) -> Object:
    """An identity without rights and without a token."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata(resource, resource.name),
        "automountServiceAccountToken": False,
    }


def network_policy(resource: Resource) -> Object:
    """Inference only through the router of the namespace; the admin port is read-only and open."""
    router = {"matchLabels": {names.LABEL_COMPONENT: names.COMPONENT_ROUTER}}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(resource, resource.name),
        "spec": {
            "podSelector": {"matchLabels": selector(resource.name)},
            "policyTypes": ["Ingress"],
            "ingress": [
                {"from": [{"podSelector": router}], "ports": [_port(names.INFERENCE_PORT), _port(names.GRPC_PORT)]},
                {"ports": [_port(names.ADMIN_PORT)]},
            ],
        },
    }


def service(resource: Resource) -> Object:
    """What clients use. It selects the router's pods, which tell models apart by host."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(resource, resource.name),
        "spec": {
            "ports": [{"name": "http", "port": names.SERVICE_PORT, "targetPort": "http", "protocol": "TCP"}],
            "selector": {names.LABEL_COMPONENT: names.COMPONENT_ROUTER},
        },
    }


def _port(number: int) -> Object:
    return {"port": number, "protocol": "TCP"}
