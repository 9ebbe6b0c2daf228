"""The API server as a person sees it: short verbs over plain JSON, and waiting for something to become so."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from headway_api import names
from headway_operator.kinds import CHILDREN, MODEL_DEPLOYMENT
from kubernetes import config

Object = dict[str, Any]
T = TypeVar("T")

PATHS = {kind.kind: kind for kind in (*CHILDREN, MODEL_DEPLOYMENT)}
USER = "somebody"  # field manager of everything that is done by hand


class RefusedError(Exception):
    """The API server said no, with this status and these words."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(f"{status} {words}")
        self.status = status


def eventually(look: Callable[[], T], *, seconds: float = 60.0, every: float = 0.1) -> T:
    """What `look` returns once it is true and no assertion fails. Fails with the last failure after `seconds`."""
    end = time.monotonic() + seconds
    while True:
        failure: Exception | None = None
        try:
            if found := look():
                return found
        except (AssertionError, KeyError, IndexError, StopIteration, OSError) as error:
            failure = error
        if time.monotonic() > end:
            raise AssertionError(f"not so after {seconds} s: {failure or 'it stayed false'}") from failure
        time.sleep(every)


class Kube:
    """One namespace of the API server, with an administrator's rights."""

    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        self.namespace = namespace
        self._client = config.new_client_from_config(str(kubeconfig))

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def get(self, kind: str, name: str) -> Object | None:
        """The object, or None."""
        try:
            return self._call("GET", PATHS[kind].path(self.namespace, name))
        except RefusedError as error:
            if error.status == 404:
                return None
            raise

    def must(self, kind: str, name: str) -> Object:
        """The object, which is there."""
        found = self.get(kind, name)
        assert found is not None, f"no {kind}/{name}"
        return found

    def all(self, kind: str, path: str | None = None) -> list[Object]:
        """All objects of the kind, without the router's (it has tests of its own) and what every namespace has."""
        items = self._call("GET", path or PATHS[kind].path(self.namespace))["items"]
        others = ("kube-root-ca.crt", "default", names.ROUTER_NAME)
        ours = [item for item in items if not item["metadata"]["name"].startswith(others)]
        return sorted(ours, key=lambda item: str(item["metadata"]["name"]))

    def apply(self, obj: Object) -> Object:
        """kubectl apply --server-side."""
        metadata = {"namespace": self.namespace, **obj["metadata"]}
        path = PATHS[obj["kind"]].path(metadata["namespace"], metadata["name"])
        body = {**obj, "metadata": metadata}
        query = [("fieldManager", USER), ("force", "true")]
        return self._call("PATCH", path, body, content="application/apply-patch+yaml", query=query)

    def create(self, path: str, body: Object) -> Object:
        """kubectl create."""
        return self._call("POST", path, body)

    def patch(self, kind: str, name: str, body: Object, *, subresource: str | None = None) -> Object:
        """kubectl patch --type=merge."""
        path = PATHS[kind].path(self.namespace, name, subresource=subresource)
        return self._call("PATCH", path, body, content="application/merge-patch+json", query=[("fieldManager", USER)])

    def delete(self, kind: str, name: str, *, propagation: str = "Background") -> None:
        """kubectl delete, without waiting."""
        self._call("DELETE", PATHS[kind].path(self.namespace, name), {"propagationPolicy": propagation})

    def delete_path(self, path: str) -> None:
        """kubectl delete, for what is not the operator's."""
        self._call("DELETE", path)

    def pods(self) -> list[Object]:
        """All pods."""
        return self.all("Pod", f"/api/v1/namespaces/{self.namespace}/pods")

    def bind(self, name: str) -> None:
        """Schedule a pod to a node that does not exist, so that no kubelet ever starts it: to one of this namespace's
        own, because whoever collects the pods of missing nodes waits 40 s for a name, and not for each pod.
        """
        # once the scheduler has said that there is no node: it would say so over the binding, too
        path = f"/api/v1/namespaces/{self.namespace}/pods/{name}"
        eventually(lambda: self._call("GET", path)["status"].get("conditions"))
        node = {"apiVersion": "v1", "kind": "Node", "name": f"nowhere-{self.namespace}"}
        self.create(f"{path}/binding", {"metadata": {"name": name}, "target": node})

    def patch_pod_status(self, name: str, status: Object) -> Object:
        """What a kubelet does: write the status of a pod."""
        path = f"/api/v1/namespaces/{self.namespace}/pods/{name}/status"
        return self._call("PATCH", path, {"status": status}, content="application/merge-patch+json")

    def events(self, reason: str) -> list[Object]:
        """Events with a reason."""
        items = self.all("Event", f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events")
        return [event for event in items if event["reason"] == reason]

    def condition(self, model: str, type_: str) -> Object:
        """A condition of a ModelDeployment."""
        conditions = self.must("ModelDeployment", model)["status"]["conditions"]
        return next(dict(condition) for condition in conditions if condition["type"] == type_)

    def children(self) -> dict[str, Object]:
        """`Kind/name` -> everything of the kinds that the operator makes."""
        found = (item | {"kind": kind.kind} for kind in CHILDREN for item in self.all(kind.kind))
        return {f"{item['kind']}/{item['metadata']['name']}": item for item in found}

    def _call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content: str = "application/json",
        query: list[tuple[str, str]] | None = None,
    ) -> Object:
        headers = {"Content-Type": content, "Accept": "application/json"}
        request = self._client.param_serialize(
            method, path, query_params=query or [], header_params=headers, body=body, auth_settings=["BearerToken"]
        )
        response = self._client.call_api(*request)
        answer = response.read()
        if not 200 <= response.status <= 299:
            raise RefusedError(response.status, answer.decode())
        result = json.loads(answer)
        assert isinstance(result, dict)
        return result
