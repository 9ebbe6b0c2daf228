"""ModelDeployments of these tests."""

from typing import Any

from headway_api import names

Object = dict[str, Any]


def model(name: str = "sentiment", **spec: Any) -> Object:
    """The smallest ModelDeployment, with more in its spec."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": name},
        "spec": {"artifact": {"uri": "s3://models/sentiment.pt2"}, "device": {"kind": "cpu"}, **spec},
    }


def revision_of(md: Object) -> str:
    """The revision that a ModelDeployment's status calls stable."""
    return next(str(entry["name"]) for entry in md["status"]["revisions"] if entry["role"] == "Stable")
