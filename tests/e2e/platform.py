"""A cluster with Headway in it: the one in HEADWAY_KUBECONFIG, or the embedded one, built and started on first use."""

import copy
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import obstore
import yaml
from obstore.store import S3Store
from onenode import images, instance, s3
from onenode.build import ALL, CLUSTER, build
from onenode.errors import OnenodeError

from tests.e2e import hostile_files, models
from tests.e2e.cluster_access import Access, Object, StoryError
from tests.e2e.story import MODEL, Story

REPOSITORY = Path(__file__).resolve().parents[2]
SYSTEM_NAMESPACE = "headway-system"
BUCKET = "models"
CREDENTIALS = "models-read"
INSTANCE = 0  # of the embedded cluster; `make cluster` and `make down` mean the same one
Say = Callable[[str], Any]


@dataclass(frozen=True, slots=True)
class Platform:
    """The cluster, and which images it can run: name -> reference."""

    access: Access
    images: dict[str, str]
    embedded: bool

    def install(self, say: Say) -> None:
        """`helm upgrade --install` of the repository's chart with these images."""
        values = [
            part
            for name in ("operator", "runtime", "router")
            for part in ("--set-string", _image_values(name, self.images[name]))
        ]
        say("helm upgrade --install headway charts/headway")
        self.access.run(
            *("helm", "upgrade", "--install", "headway", str(REPOSITORY / "charts/headway")),
            *("--namespace", SYSTEM_NAMESPACE, "--create-namespace", *values),
        )
        self.access.kubectl(
            "rollout", "status", "-n", SYSTEM_NAMESPACE, "deployment/headway-operator", "--timeout=120s"
        )

    def namespace(self, name: str) -> None:
        """Make sure that it exists and enforces the `restricted` Pod Security level."""
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        self.access.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})

    def forget(self, namespace: str, *, wait: bool = True) -> None:
        """Delete the namespace and all in it; waiting takes up to a minute, because pods and routers drain."""
        waiting = ["--timeout=180s"] if wait else ["--wait=false"]
        self.access.kubectl("delete", "namespace", namespace, "--ignore-not-found", *waiting)

    def publish(self, namespace: str, say: Say) -> tuple[Object, Object, Object]:
        """Put the demo's artifacts into an object store in the namespace; their `artifact` fields.

        Both versions of the model, and the second one with a pickle in it that would run when it is loaded.
        """
        paths = {f"minilm/{version}/model.pt2": models.exported(version, say) for version in (1, 2)}
        with tempfile.TemporaryDirectory() as folder:
            hostile = hostile_files.with_pickle(paths["minilm/2/model.pt2"], Path(folder) / "model.pt2")
            paths["minilm/hostile/model.pt2"] = hostile
            publish(self, namespace, paths)
            for key, path in paths.items():
                say(f"s3://{BUCKET}/{key}  {path.stat().st_size / 1e6:.0f} MB")
        first, second, third = ({"uri": f"s3://{BUCKET}/{key}"} for key in paths)
        return {**first, "credentials": {"secretName": CREDENTIALS}}, second, third

    def story(self, namespace: str, artifact: Object) -> Story:
        """A story about the example's manifest, small enough for two cores."""
        manifest = yaml.safe_load((REPOSITORY / "examples/minilm/modeldeployment.yaml").read_text())
        manifest["metadata"] |= {"name": MODEL, "namespace": namespace}
        manifest["spec"]["artifact"] = copy.deepcopy(artifact)
        manifest["spec"]["template"]["resources"]["requests"] = {"cpu": "100m", "memory": "512Mi"}
        return Story(self.access, namespace, manifest)

    def shell_exports(self) -> str:
        """What makes kubectl in a shell talk to this cluster."""
        path = f" PATH={self.access.tools}:$PATH" if self.access.tools else ""
        return f"export KUBECONFIG={self.access.kubeconfig}{path}"

    @property
    def how_to_end(self) -> str:
        if self.embedded:
            return "make down"
        return f"helm uninstall headway -n {SYSTEM_NAMESPACE}, and delete the namespace of the demo"


def open_platform(say: Say) -> Platform:
    """The cluster to use. Raises StoryError saying what is missing and what to do."""
    if given := os.environ.get("HEADWAY_KUBECONFIG"):
        prefix = os.environ.get("HEADWAY_IMAGES")
        if not prefix:
            raise StoryError(
                "HEADWAY_KUBECONFIG is set, HEADWAY_IMAGES is not: push the images operator, runtime, router and s3 to "
                "where the cluster can pull them, and set HEADWAY_IMAGES to their common prefix, as in "
                "registry.example/headway for registry.example/headway-operator:dev"
            )
        say(f"using the cluster of {given}")
        named = {name: f"{prefix}-{name}:dev" for name in images.NAMES}
        return Platform(Access(Path(given).expanduser(), None), named, embedded=False)
    try:
        say("building Kubernetes from source, where that was not done before (8 to 15 minutes on two cores, once)")
        build(ALL)
        say("starting it: etcd, API server, controllers, scheduler, kubelet, kube-proxy, CoreDNS, containerd")
        kubeconfig = instance.up(INSTANCE, node=True)
        say("building the images that changed, and loading them (about 6 minutes the first time)")
        loaded = images.ensure(images.NAMES, INSTANCE)
    except OnenodeError as error:
        raise StoryError(
            f"{error}. To use another cluster, set HEADWAY_KUBECONFIG to its kubeconfig and HEADWAY_IMAGES to where "
            "it can pull Headway's images from"
        ) from error
    return Platform(Access(kubeconfig, CLUSTER.bin_dir()), _by_name(loaded), embedded=True)


def publish(platform: Platform, namespace: str, files: Mapping[str, Path]) -> None:
    """Make sure that the namespace has an S3 server and a Secret with its keys; put the files there."""
    access, secret = "headway-demo", f"only-for-{namespace}"
    manifest = s3.manifest(namespace, bucket=BUCKET, access=access, secret=secret, image=platform.images["s3"])
    platform.access.kubectl("apply", "-f", "-", stdin=manifest)
    platform.access.kubectl("rollout", "status", "-n", namespace, f"deployment/{s3.NAME}", "--timeout=120s")
    keys = {"AWS_ACCESS_KEY_ID": access, "AWS_SECRET_ACCESS_KEY": secret, "AWS_REGION": "us-east-1"}
    with platform.access.reach(namespace, s3.NAME) as url:
        store = S3Store(
            BUCKET,
            endpoint=url,
            access_key_id=access,
            secret_access_key=secret,
            region=keys["AWS_REGION"],
            client_options={"allow_http": True},
        )
        for key, path in files.items():
            obstore.put(store, key, path)
    platform.access.apply(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": CREDENTIALS, "namespace": namespace},
            "stringData": {**keys, "AWS_ENDPOINT_URL": f"http://{s3.NAME}.{namespace}.svc"},
        }
    )


def _by_name(loaded: list[str]) -> dict[str, str]:
    """The content-addressed name of each image: a changed image is then a changed pod."""
    exact = [name for name in loaded if not name.endswith(":dev")]
    return {reference.rsplit(":", 1)[0].rsplit("headway-", 1)[1]: reference for reference in exact}


def _image_values(name: str, reference: str) -> str:
    repository, _, tag = reference.rpartition(":")
    return f"image.{name}.repository={repository},image.{name}.tag={tag}"
