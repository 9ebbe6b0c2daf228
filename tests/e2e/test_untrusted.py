"""An artifact from anyone, end to end in real pods: what is refused never runs, and what serves is confined."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from headway_api.names import ADMIN_PORT, MODEL_DIR, SERVE_CONTAINER
from headway_runtime.prepare.signatures.keys import PrivateKey, generate
from onenode import instance, s3

from tests.e2e import hostile_files, node, untrusted
from tests.e2e.cluster_access import Object, conditions, wait_until
from tests.e2e.platform import BUCKET, INSTANCE, Platform, publish
from tests.e2e.small import MODEL, Small, export, small_world

NAMESPACE = "headway-untrusted"
SIGNERS = "signers"
PROBE = Path(__file__).with_name("probe.py")


@dataclass(frozen=True)
class Keys:
    """Two that are trusted at first, one that never is, and a builder's."""

    old: PrivateKey
    new: PrivateKey
    stranger: PrivateKey
    builder: PrivateKey


@pytest.fixture(scope="module")
def keys() -> Keys:
    return Keys(generate(), generate(), generate(), generate())


@pytest.fixture(scope="module")
def world(platform: Platform, keys: Keys, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Small]:
    """A model that serves under `sandbox: Require`, and artifacts that are not to be trusted beside it."""
    directory: Path = tmp_path_factory.mktemp("untrusted")
    with small_world(platform, NAMESPACE, directory, sandbox="Require") as small:
        publish(platform, NAMESPACE, _files(directory, keys))
        platform.access.apply(untrusted.secret(NAMESPACE, SIGNERS, old=keys.old, new=keys.new))
        yield small


def _files(directory: Path, keys: Keys) -> dict[str, Path]:
    first, second = export(directory, 1), export(directory, 2)
    files = {"hostile.pt2": hostile_files.with_pickle(second, directory / "hostile.pt2")}
    signed = {
        "by-old": untrusted.sign(first, keys.old),
        "by-new": untrusted.sign(second, keys.new),
    }
    for name, artifact in (("by-old", first), ("by-new", second), ("unsigned", first)):
        files[f"{name}.pt2"] = artifact
    files |= {f"{name}.pt2.sig": signature for name, signature in signed.items()}
    tampered, strange = directory / "tampered.pt2", directory / "strange.pt2"
    for copy in (tampered, strange):
        copy.write_bytes(second.read_bytes())
    untrusted.sign(tampered, keys.old, of=first)
    untrusted.sign(strange, keys.stranger)
    for path in (tampered, strange):
        files |= {path.name: path, f"{path.name}.sig": path.with_name(f"{path.name}.sig")}
    return {f"untrusted/{name}": path for name, path in files.items()}


def artifact(name: str) -> Object:
    return {"uri": f"s3://{BUCKET}/untrusted/{name}.pt2"}


def trusted(name: str, secret: str = SIGNERS) -> Object:
    return {**artifact(name), "trust": {"require": "Signature", "publicKeys": {"secretName": secret}}}


def message(world: Small, condition: str) -> str:
    return str(conditions(world.resource())[condition]["message"])


def test_a_hostile_canary_never_runs_and_the_stable_answers_every_request(world: Small) -> None:
    stable = world.revision("Stable")
    with world.traffic() as traffic:
        world.apply(canary={"artifact": artifact("hostile"), "weight": 50})
        said = world.wait_reason("ArtifactVerified", "UnsafeArtifact")
        assert "spec.artifact.uri" in said
        assert "the example inputs hold more than plain tensors" in said
        canary = world.revision("Canary")
        assert canary
        (pod,) = wait_until("its second attempt", lambda: _tried_again(world, canary), seconds=180, every=0.5)
        (serve,) = pod["status"]["containerStatuses"]
        assert (serve["name"], serve["started"], serve["restartCount"]) == (SERVE_CONTAINER, False, 0)
        assert "containerID" not in serve, "the container that would run it was never made"
        if world.platform.embedded:
            assert hostile_files.MARKER.name not in node.scratch(pod, _init())
        (shown,) = [r for r in world.resource()["status"]["revisions"] if r["name"] == canary]
        assert (shown["weight"], shown["ready"]) == (0, 0)
        assert conditions(world.resource())["Ready"]["status"] == "True"
        assert set(traffic.by_revision()) == {stable}

        world.apply(canary={"artifact": {"uri": f"s3://{BUCKET}/small/2.pt2"}, "weight": 50})
        world.wait("UpToDate", "Routed", "ArtifactVerified")
        good = world.revision("Canary")
        wait_until("answers of the good canary", lambda: traffic.by_revision()[good or ""] > 10, seconds=180)
        world.apply()
        world.wait("UpToDate", "Routed")
    assert not traffic.failures, traffic.failures[:3]
    assert set(traffic.by_revision()) == {stable, good}


def _tried_again(world: Small, revision: str) -> list[Object]:
    pods = world.pods(revision)
    return [p for p in pods if p["status"]["initContainerStatuses"][0]["restartCount"]]


def _init() -> int:
    found = instance.find(INSTANCE)
    assert found
    return found[1]


def test_only_what_a_trusted_key_has_signed_is_served_and_keys_can_be_rotated(world: Small, keys: Keys) -> None:
    with world.traffic() as traffic:
        world.apply(artifact=trusted("by-old"))
        world.wait("UpToDate", "Routed", "ArtifactVerified")
        assert f"signed by {keys.old.keyid}" in message(world, "ArtifactVerified")
        served = world.revision("Stable")
        for name, reason, says in (
            ("unsigned", "SignatureMissing", ".sig"),
            ("tampered", "SignatureInvalid", "another file"),
            ("strange", "SignatureInvalid", "no trusted key"),
        ):
            world.apply(artifact=trusted(name))
            said = world.wait_reason("ArtifactVerified", reason)
            assert "spec.artifact.trust" in said
            assert says in said
            assert world.revision("Stable") == served

        world.apply(artifact=trusted("by-new"))  # both keys are in the Secret: the new one can sign already
        world.wait("UpToDate", "Routed", "ArtifactVerified")
        assert f"signed by {keys.new.keyid}" in message(world, "ArtifactVerified")
        world.platform.access.apply(untrusted.secret(NAMESPACE, "rotated", new=keys.new))
        world.apply(artifact=trusted("by-old", "rotated"))  # and now the old one counts no more
        assert keys.old.keyid in world.wait_reason("ArtifactVerified", "SignatureInvalid")

        world.apply(artifact=trusted("by-new", "nobody"))
        said = world.wait_reason("UpToDate", "SecretNotFound")
        assert "spec.artifact.trust.publicKeys.secretName: the Secret 'nobody'" in said
        world.apply()
        world.wait("UpToDate", "Routed", "ArtifactVerified")
        assert "no verified signature" in message(world, "ArtifactVerified")
    assert not traffic.failures, traffic.failures[:3]


def test_a_pod_that_serves_is_confined_and_status_says_so(world: Small) -> None:
    world.wait("Ready", "Sandboxed")
    stable = world.revision("Stable")
    (pod,) = world.pods(stable or "")
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}:{ADMIN_PORT}/proxy/report"
    report = json.loads(world.platform.access.kubectl("get", "--raw", path))["sandbox"]
    assert report["landlock"] > 0
    assert report["seccomp"] is True
    assert report["missing"] == []
    (shown,) = [r for r in world.resource()["status"]["revisions"] if r["name"] == stable]
    assert shown["sandbox"] == "Full"


def test_the_kernel_confirms_it_for_every_thread_of_the_serving_process(world: Small) -> None:
    if not world.platform.embedded:
        pytest.skip("the processes of a pod are seen on the embedded cluster only")
    (pod,) = world.pods(world.revision("Stable") or "")
    (serve,) = node.processes(pod, "headway_runtime.serve")
    threads = list(node.threads(serve))
    assert len(threads) > 1, "threads that were made after the sandbox are what this is about"
    for thread in threads:
        assert thread["NoNewPrivs"] == "1"
        assert thread["Seccomp"] == "2"
        assert int(thread["Seccomp_filters"]) >= 2, "the runtime's default, and ours"
        assert int(thread["CapEff"], 16) == 0
        assert set(thread["Uid"].split()) == {"65532"}


def test_the_sandbox_denies_in_a_real_pod_what_was_possible_before_it(world: Small) -> None:
    """In a pod as the model's own: same image, same mounts, same security context, at the `restricted` level."""
    access = world.platform.access
    deployment = access.get(NAMESPACE, "deployment", f"{MODEL}-{world.revision('Stable')}")
    spec = deployment["spec"]["template"]["spec"]
    (serve,) = spec["containers"]
    store = access.get(NAMESPACE, "service", s3.NAME)["spec"]
    target = [store["clusterIP"], str(store["ports"][0]["port"])]
    kept = {key: value for key, value in serve.items() if not key.endswith("Probe")}
    probe = {**kept, "command": ["python", "-c", PROBE.read_text(), *target]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe", "namespace": NAMESPACE}}
    access.apply({**pod, "spec": {**spec, "containers": [probe], "restartPolicy": "Never"}})

    def ended() -> Object | None:
        status = access.get(NAMESPACE, "pod", "probe")["status"]
        return status if status["phase"] in ("Succeeded", "Failed") else None

    status = wait_until("the probe to end", ended, seconds=300, every=0.3)
    log = access.kubectl("logs", "-n", NAMESPACE, "probe", "-c", SERVE_CONTAINER)
    assert status["phase"] == "Succeeded", log
    told = json.loads(log.splitlines()[-1])
    assert set(told["before"].values()) == {"done"}, told["before"]
    assert set(told["allowed"].values()) == {"done"}, told["allowed"]
    assert set(told["after"].values()) <= {"PermissionError", "OSError"}, told["after"]
    assert told["report"]["missing"] == []


def test_a_compiled_program_is_served_when_a_builder_has_signed_it_and_by_no_other_key(
    world: Small, keys: Keys, tmp_path: Path
) -> None:
    built = untrusted.compiled(export(tmp_path, 2), tmp_path / "native.pt2", keys.builder)
    publish(world.platform, NAMESPACE, {f"untrusted/{path.name}": path for path in built})
    world.platform.access.apply(untrusted.secret(NAMESPACE, "builders", builder=keys.builder))
    with world.traffic() as traffic:
        world.apply(artifact=trusted("native", "builders"))
        said = world.wait_reason("ArtifactVerified", "SignatureInvalid")
        assert "spec.artifact.trust.builderKeys" in said

        world.apply(artifact={**artifact("native"), "trust": {"builderKeys": {"secretName": "builders"}}})
        world.wait("UpToDate", "Routed", "ArtifactVerified", "Sandboxed")
        assert f"signed by {keys.builder.keyid}" in message(world, "ArtifactVerified")
        native = world.revision("Stable")
        wait_until("its answers", lambda: traffic.by_revision()[native or ""] > 10, seconds=180)
        if world.platform.embedded:
            (pod,) = world.pods(native or "")
            (serve,) = node.processes(pod, "headway_runtime.serve")
            assert node.libraries(serve, MODEL_DIR), "its code is mapped from the prepared program"
        world.apply()
        world.wait("UpToDate", "Routed")
    assert not traffic.failures, traffic.failures[:3]
