"""A cluster with a node: real pods, an S3 server in one of them, and nothing left afterwards."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.exceptions import PermissionDeniedError
from obstore.store import S3Store
from onenode import cgroups, images, instance, requirements, s3
from onenode.build import CLUSTER
from onenode.layout import NODE_INSTANCES, Layout

pytestmark = [
    pytest.mark.skipif("HEADWAY_KUBECONFIG" in os.environ, reason="HEADWAY_KUBECONFIG names another cluster"),
    pytest.mark.skipif(os.geteuid() != 0, reason="a node needs root"),
]


def machine() -> dict[str, set[str]]:
    """What a cluster could leave behind on the machine."""

    def lines(*command: str) -> set[str]:
        return set(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines())

    sysctls = ("vm/overcommit_memory", "kernel/panic", "net/ipv4/ip_forward")
    return {
        "mounts": {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()},
        "links": {path.name for path in Path("/sys/class/net").iterdir()},
        "routes": lines("ip", "-4", "route", "show", "table", "all"),
        "rules": lines("nft", "list", "ruleset"),
        "namespaces": lines("ip", "netns", "list"),
        "cgroups": {str(path) for path in cgroups.ROOT.glob("*/onenode-*")}
        | {str(p) for p in cgroups.ROOT.glob("onenode-*")},
        "sysctls": {f"{name}={Path('/proc/sys', name).read_text()}" for name in sysctls},
        "folders": {str(path) for top in ("/run", "/var/lib", "/var/log", "/opt") for path in Path(top).iterdir()},
    }


def processes_of(layout: Layout, namespace: str) -> list[str]:
    """Processes in the instance's own PID namespace, or in the cgroups of its pods."""
    return [path.name for path in Path("/proc").glob("[0-9]*") if belongs(path, layout, namespace)]


def belongs(process: Path, layout: Layout, namespace: str) -> bool:
    try:
        in_pod = f"/{layout.cgroup}/" in (process / "cgroup").read_text()
        return in_pod or os.readlink(process / "ns/pid") == namespace
    except OSError:  # it has ended
        return False


@dataclass(frozen=True)
class Node:
    layout: Layout

    def kubectl(self, *args: str, given: str | None = None) -> str:
        command = [str(CLUSTER.bin_dir() / "kubectl"), f"--kubeconfig={self.layout.kubeconfig}", *args]
        return subprocess.run(command, input=given, check=True, capture_output=True, text=True).stdout

    def get(self, *args: str) -> Any:
        return json.loads(self.kubectl("get", *args, "--output=json"))


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    """An instance that nobody else uses; the machine must afterwards be as it was."""
    free = [number for number in reversed(NODE_INSTANCES) if not instance.find(number)]
    layout, before = Layout(free[0]), machine()
    try:
        instance.up(layout.instance, node=True)
        holder, init = (process for process, _ in json.loads((layout.run / "state.json").read_text())["processes"])
        during, namespace = machine(), os.readlink(f"/proc/{init}/ns/pid")
        inside = processes_of(layout, namespace)
        yield Node(layout)
    finally:
        instance.down(layout.instance)
        shutil.rmtree(layout.images)
    assert {name for name in before if during[name] - before[name]} == {"links", "routes", "cgroups"}
    after = machine()
    assert {name: after[name] - before[name] for name in before if after[name] - before[name]} == {}
    assert len(inside) > 10
    deadline = time.monotonic() + 5  # all were killed; the kernel may still be freeing the memory of one
    while left := processes_of(layout, namespace):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)
    assert not Path(f"/proc/{holder}").exists()  # not even as a zombie
    assert not layout.run.exists()


def test_the_node_is_ready_and_names_resolve_for_half_a_minute(node: Node) -> None:
    conditions = {entry["type"]: entry["status"] for entry in node.get("node", "node-1")["status"]["conditions"]}
    assert conditions["Ready"] == "True"
    corefile = node.get("configmap", "coredns", "--namespace=kube-system")["data"]["Corefile"]
    assert "ttl 30" in corefile
    assert "cache 30" in corefile


def test_addresses_of_a_running_instance_are_its_own(node: Node) -> None:
    assert requirements.address_clash(node.layout, requirements.routes()) == (None, None)


@pytest.fixture(scope="module")
def endpoint(node: Node) -> str:
    """URL, from the machine, of an S3 server with a bucket `models` in a namespace of the restricted level."""
    images.ensure(["s3"], node.layout.instance)
    node.kubectl("create", "namespace", "store")
    node.kubectl("label", "namespace", "store", "pod-security.kubernetes.io/enforce=restricted")
    node.kubectl("apply", "-f", "-", given=s3.manifest("store", bucket="models", access="me", secret="mine"))
    node.kubectl("--namespace=store", "rollout", "status", "deployment/s3", "--timeout=60s")
    return f"http://{node.get('service', 's3', '--namespace=store')['spec']['clusterIP']}"


def store(endpoint: str, *, secret: str = "mine", bucket: str = "models") -> S3Store:
    return S3Store(
        bucket,
        endpoint=endpoint,
        access_key_id="me",
        secret_access_key=secret,
        region="us-east-1",
        client_options={"allow_http": True},
        retry_config={"max_retries": 0},
    )


def test_an_object_comes_back_as_it_was_put_whole_and_in_part(endpoint: str) -> None:
    models, data = store(endpoint), os.urandom(12_000_000)  # large enough to be sent in several parts
    obstore.put(models, "a/b.pt2", data)
    assert obstore.get(models, "a/b.pt2").bytes() == data
    assert obstore.get_range(models, "a/b.pt2", start=5, length=10) == data[5:15]
    assert [entry["path"] for batch in obstore.list(models) for entry in batch] == ["a/b.pt2"]


def test_wrong_credentials_are_refused(endpoint: str) -> None:
    obstore.put(store(endpoint), "there", b"1")
    with pytest.raises(PermissionDeniedError, match="403"):
        obstore.get(store(endpoint, secret="wrong"), "there")
    with pytest.raises(PermissionDeniedError, match="403"):
        obstore.put(store(endpoint, secret="wrong"), "more", b"1")


@pytest.mark.parametrize("bucket", ["models", "no-such-bucket"])
def test_what_is_not_there_is_not_found(endpoint: str, bucket: str) -> None:
    with pytest.raises(FileNotFoundError, match="404"):
        obstore.get(store(endpoint, bucket=bucket), "nothing")


def test_loading_again_what_the_node_has_sends_nothing(endpoint: str, node: Node) -> None:
    assert images.Node(node.layout.instance).has(images.ensure(["s3"], node.layout.instance))
    assert not images.Node(node.layout.instance).has(["localhost/headway-s3:dev", "localhost/headway-s3:other"])
