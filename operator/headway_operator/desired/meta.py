"""Names, labels and owners of the objects of a ModelDeployment."""

from headway_api import names

from headway_operator.observed import Object, Resource


def labels(model: str, revision: str | None = None) -> dict[str, str]:
    """The labels of every object; those of a revision name it."""
    common = {
        names.LABEL_MANAGED_BY: names.MANAGED_BY,
        names.LABEL_MODEL: model,
        names.LABEL_COMPONENT: names.COMPONENT_RUNTIME,
    }
    return common | ({names.LABEL_REVISION: revision} if revision else {})


def selector(model: str, revision: str | None = None) -> dict[str, str]:
    """The labels by which pods are selected; for good, because a Deployment's selector is immutable."""
    common = {names.LABEL_MODEL: model, names.LABEL_COMPONENT: names.COMPONENT_RUNTIME}
    return common | ({names.LABEL_REVISION: revision} if revision else {})


def metadata(
    resource: Resource, name: str, *, revision: str | None = None, annotations: dict[str, str] | None = None
) -> Object:
    """Metadata of an object that the ModelDeployment owns; its deletion waits for none of them."""
    return {
        "name": name,
        "namespace": resource.namespace,
        "labels": labels(resource.name, revision),
        **({"annotations": annotations} if annotations else {}),
        "ownerReferences": [
            {
                "apiVersion": names.API_VERSION,
                "kind": names.KIND,
                "name": resource.name,
                "uid": resource.uid,
                "controller": True,
                "blockOwnerDeletion": False,
            }
        ],
    }
