"""Routers without a node: the real Deployment's pods, with the real Envoy behind the address in their status.

Pods are never run by the control plane alone, so this plays the kubelet: it gives them an address and readiness, and
mounts what the pod template says from the ConfigMaps: at first, and when a pod's annotation changes. All pods of the
Deployment share one Envoy: what they acknowledge is the same.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headway_api import names
from headway_operator.cluster import Cluster
from headway_operator.kinds import CHILDREN, CONFIG_MAP, DEPLOYMENT, MODEL_DEPLOYMENT, POD
from headway_operator.router.podtemplate import Image
from headway_operator.router.reconcile import RouterReconciler
from headway_operator.router.render import Site
from headway_operator.store import Owner, Store
from kubernetes import client, config

from realrouter.envoy import Envoy
from realrouter.pods import Pods

Object = dict[str, Any]
SELECTOR = f"{names.LABEL_COMPONENT}={names.COMPONENT_ROUTER}"


@dataclass(slots=True)
class PlayedRouter:
    """A namespace's router, its pods, and the operator's view of them."""

    cluster: Cluster
    kubeconfig: Path
    site: Site  # of the namespace
    envoy: Envoy
    pods: Pods
    store: Store = field(default_factory=Store)
    woken: list[Owner] = field(default_factory=list)
    now: float = 1_000_000.0
    deaf: bool = False  # the kubelet does not notice annotations
    _noticed: set[str] = field(default_factory=set)
    _version: int = 0
    _started: list[Object] = field(default_factory=list)  # runtime pods

    def operator(self) -> RouterReconciler:
        """A new operator process: all that it knows is what it finds."""
        self.store, self.woken = Store(), []
        return RouterReconciler(
            cluster=self.cluster,
            store=self.store,
            image=Image("headway-router:test"),
            wake=self.woken.append,
            clock=lambda: self.now,
            site=self.site,
        )

    async def start(self, model: str, revision: str) -> None:
        """Start a runtime pod that is ready."""
        pod = await self.pods.start(model, revision)
        labels = {names.LABEL_MODEL: model, names.LABEL_REVISION: revision}
        metadata = {"name": pod.address, "namespace": self.site.namespace, "uid": pod.address, "labels": labels}
        status = {"phase": "Running", "podIP": pod.address, "conditions": [{"type": "Ready", "status": "True"}]}
        self._started.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "status": status})

    def has_models(self, *models: str) -> None:
        """Which ModelDeployments the operator sees in the namespace; only their names matter to a router."""
        self._version += 1
        found = [self._model(model) for model in models]
        self.store.replace(MODEL_DEPLOYMENT, found, self._version, self.site.namespace)

    async def look(self) -> None:
        """The kubelet's and the watches' turn."""
        for pod in (await self.cluster.list(POD, self.site.namespace, labels=SELECTOR))[0]:
            if not (pod.get("status") or {}).get("podIP") and "deletionTimestamp" not in pod["metadata"]:
                await self._mount()
                if self.envoy.process is None:
                    await self.envoy.start()
                self._run(pod["metadata"]["name"])
            sync = (pod["metadata"].get("annotations") or {}).get(names.ANNOTATION_SYNC, "")
            if sync not in self._noticed and sync and not self.deaf:
                self._noticed.add(sync)
                await self._mount()
        for kind in (*CHILDREN, POD):
            objects, version = await self.cluster.list(kind, self.site.namespace, labels=SELECTOR)
            running = [self._running(pod, version) for pod in self._started] if kind is POD else []
            self.store.replace(kind, [*objects, *running], version, self.site.namespace)

    async def objects(self) -> dict[str, Object]:
        """The router's objects as the API server has them, by `Kind/name`."""
        found: dict[str, Object] = {}
        for kind in CHILDREN:
            for obj in (await self.cluster.list(kind, self.site.namespace, labels=SELECTOR))[0]:
                found[f"{kind.kind}/{obj['metadata']['name']}"] = obj
        return found

    async def _mount(self) -> None:
        deployment = await self.cluster.get(DEPLOYMENT, self.site.namespace, names.ROUTER_NAME)
        assert deployment is not None
        (volume,) = deployment["spec"]["template"]["spec"]["volumes"]
        files: dict[str, str] = {}
        for source in volume["projected"]["sources"]:
            found = await self.cluster.get(CONFIG_MAP, self.site.namespace, source["configMap"]["name"])
            assert found is not None
            files |= {item["path"]: found["data"][item["key"]] for item in source["configMap"]["items"]}
        self.envoy.mount({path: text for path, text in files.items() if path != "bootstrap.json"})

    def _run(self, pod: str) -> None:
        status = {
            "phase": "Running",
            "podIP": "127.0.0.1",
            "podIPs": [{"ip": "127.0.0.1"}],
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        with config.new_client_from_config(str(self.kubeconfig)) as kubelet:
            client.CoreV1Api(kubelet).patch_namespaced_pod_status(pod, self.site.namespace, {"status": status})

    def _running(self, pod: Object, version: int) -> Object:
        return {**pod, "metadata": {**pod["metadata"], "resourceVersion": str(version)}}

    def _model(self, name: str) -> Object:
        metadata = {"name": name, "namespace": self.site.namespace, "uid": name, "resourceVersion": str(self._version)}
        return {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": metadata}
