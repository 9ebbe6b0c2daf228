"""The objects of a ModelDeployment: valid, owned, in order, and from the record."""

import json
from dataclasses import replace
from typing import Any

import kubernetes_validate
import pytest
from headway_api import names
from headway_api.podconfig import ColdConfig, Knobs, knobs_hash
from headway_operator.desired import desired_objects, knobs_text, podtemplate, prunable, record, record_of
from headway_operator.kinds import CHILDREN
from headway_operator.observed import Object, Role
from headway_operator.plan import plan, route_intent

from tests.unit.golden_revisions import SPECS
from tests.unit.plan_world import World, world

B = {"uri": "s3://m/b"}


def objects(w: World) -> list[Object]:
    observed = w.observed()
    return desired_objects(observed, plan(observed, w.now))


def pod(w: World) -> Object:
    template: Object = next(obj for obj in objects(w) if obj["kind"] == "Deployment")["spec"]["template"]
    return template


def rich() -> World:
    w = world(**SPECS["every cold field"])
    w.spec = SPECS["every cold field"]
    return w


def canaried() -> World:
    w = world(replicas=2, canary={"artifact": B, "weight": 10})
    w.settle()
    return w


@pytest.mark.parametrize("make", [world, rich, canaried])
def test_every_object_is_valid_for_the_api_server(make: Any) -> None:
    for obj in objects(make()):
        if obj["kind"] != "ControllerRevision":
            kubernetes_validate.validate(obj, "1.37", strict=True)


def test_every_object_is_labelled_and_owned_and_blocks_no_deletion() -> None:
    for obj in objects(canaried()):
        labels, (owner,) = obj["metadata"]["labels"], obj["metadata"]["ownerReferences"]
        assert labels[names.LABEL_MANAGED_BY] == names.MANAGED_BY
        assert labels[names.LABEL_MODEL] == "sentiment"
        assert (owner["kind"], owner["name"], owner["uid"]) == ("ModelDeployment", "sentiment", "uid-1")
        assert (owner["controller"], owner["blockOwnerDeletion"]) == (True, False)
        assert obj["metadata"]["namespace"] == "prod"


def test_objects_come_in_the_order_in_which_they_need_each_other() -> None:
    kinds = [obj["kind"] for obj in objects(canaried())]
    order = [kind.kind for kind in CHILDREN]
    assert kinds[:-1] == sorted(kinds[:-1], key=order.index)
    assert kinds[-1] == "Service"
    assert {(obj["apiVersion"], obj["kind"]) for obj in objects(canaried())} == {
        (kind.api_version, kind.kind) for kind in CHILDREN
    }


def test_names_are_unique_within_a_kind() -> None:
    keys = [(obj["kind"], obj["metadata"]["name"]) for obj in objects(canaried())]
    assert len(keys) == len(set(keys))


def test_the_pod_satisfies_the_restricted_level() -> None:
    spec = pod(rich())["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["automountServiceAccountToken"] is False
    for container in (*spec["initContainers"], *spec["containers"]):
        security = container["securityContext"]
        assert security["allowPrivilegeEscalation"] is False
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert security["readOnlyRootFilesystem"] is True
        assert container["terminationMessagePolicy"] == "File"
    assert all(not volume.keys() & {"hostPath", "persistentVolumeClaim"} for volume in spec["volumes"])


TRUST = {"publicKeys": {"secretName": "signers"}, "builderKeys": {"secretName": "builders"}}
SECRETS = {"credentials": "models-read", "public-keys": "signers", "builder-keys": "builders"}


@pytest.mark.parametrize(("volume", "secret"), SECRETS.items())
def test_a_secret_is_mounted_into_prepare_only_and_only_when_the_spec_names_it(volume: str, secret: str) -> None:
    artifact = {"uri": "s3://m/a", "credentials": {"secretName": "models-read"}, "trust": TRUST}
    spec = pod(world(artifact=artifact))["spec"]
    (prepare,), (serve,) = spec["initContainers"], spec["containers"]
    directory = f"/etc/headway/{volume}"
    assert {"name": volume, "mountPath": directory, "readOnly": True} in prepare["volumeMounts"]
    assert volume not in {mount["name"] for mount in serve["volumeMounts"]}
    assert {"name": volume, "secret": {"secretName": secret}} in spec["volumes"]
    option = prepare["command"].index(f"--{volume}")
    assert prepare["command"][option + 1] == directory
    plain = pod(world())["spec"]
    assert f"--{volume}" not in plain["initContainers"][0]["command"]
    assert all(each["name"] != volume for each in plain["volumes"])


def test_scratch_space_is_in_memory_and_bounded() -> None:
    (tmp,) = [volume for volume in pod(world())["spec"]["volumes"] if volume["name"] == "tmp"]
    assert tmp["emptyDir"] == {"medium": "Memory", "sizeLimit": "256Mi"}


def test_the_cold_config_says_whom_to_trust_and_how_to_verify() -> None:
    w = world()
    w.spec = SPECS["trusted and verified"]
    config = next(obj for obj in objects(w) if obj["kind"] == "ConfigMap")["data"]["config.json"]
    cold = ColdConfig.model_validate_json(config)
    assert (cold.artifact.program, cold.artifact.require, cold.sandbox) == ("encoder", "Signature", "Require")
    assert (cold.verification.on_mismatch, cold.verification.rtol, cold.verification.atol) == ("Warn", 0.01, 0.1)
    w.spec = SPECS["smallest"]
    config = next(obj for obj in objects(w) if obj["kind"] == "ConfigMap")["data"]["config.json"]
    plain = ColdConfig.model_validate_json(config)
    assert (plain.artifact.require, plain.sandbox, plain.verification.on_mismatch) == ("None", "BestEffort", "Block")


def test_every_mount_has_a_volume_and_only_prepare_writes_the_model() -> None:
    spec = pod(rich())["spec"]
    volumes = {volume["name"] for volume in spec["volumes"]}
    for container in (*spec["initContainers"], *spec["containers"]):
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
        model = next(mount for mount in container["volumeMounts"] if mount["name"] == "model")
        assert model.get("readOnly", False) is (container["name"] == "serve")
        assert all("subPath" not in mount for mount in container["volumeMounts"])


def test_the_template_of_the_user_reaches_the_pod_and_our_labels_win() -> None:
    template = pod(rich())
    spec = template["spec"]
    assert spec["nodeSelector"] == {"disk": "ssd", "node-role.kubernetes.io/model": ""}
    assert spec["priorityClassName"] == "high"
    assert spec["serviceAccountName"] == "models"
    assert spec["imagePullSecrets"] == [{"name": "pull"}]
    assert spec["terminationGracePeriodSeconds"] == 100
    assert spec["containers"][0]["image"] == "registry.example/runtime:7"
    assert template["metadata"]["annotations"] == {"team": "search"}
    assert template["metadata"]["labels"]["team"] == "search"
    w = world(template={"podLabels": {names.LABEL_MODEL: "other"}})
    assert pod(w)["metadata"]["labels"][names.LABEL_MODEL] == "sentiment"


def test_the_users_environment_comes_over_ours() -> None:
    assert pod(world())["spec"]["containers"][0]["env"] == [{"name": "OMP_WAIT_POLICY", "value": "passive"}]
    w = world(template={"env": [{"name": "OMP_WAIT_POLICY", "value": "active"}]})
    assert pod(w)["spec"]["containers"][0]["env"] == [{"name": "OMP_WAIT_POLICY", "value": "active"}]


def test_a_gpu_pod_asks_for_one_device_in_the_serve_container_only() -> None:
    spec = pod(rich())["spec"]
    assert spec["containers"][0]["resources"]["limits"] == {"memory": "4Gi", "amd.com/gpu": "1"}
    assert spec["initContainers"][0]["resources"]["limits"] == {"memory": "4Gi"}
    plain = pod(world(device={"kind": "gpu"}))["spec"]["containers"][0]["resources"]
    assert plain["limits"] == {"nvidia.com/gpu": "1"}


def test_without_resources_a_pod_asks_for_a_little_and_has_no_limit() -> None:
    resources = pod(world())["spec"]["containers"][0]["resources"]
    assert resources.keys() == {"requests"}


def test_the_cold_config_says_what_to_load_and_the_digest_is_added_once_it_is_pinned() -> None:
    w = rich()
    config = next(obj for obj in objects(w) if obj["kind"] == "ConfigMap")
    cold = ColdConfig.model_validate_json(config["data"]["config.json"])
    assert (cold.model, cold.namespace, cold.artifact.uri) == ("sentiment", "prod", "s3://models/a.pt2")
    assert cold.batching.shape_buckets == {"batch": [1, 4], "sequence": [32, 64]}
    assert cold.drain_timeout == "90s"
    assert config["metadata"]["name"] == f"sentiment-{cold.revision}"
    assert "digest" not in config["data"]
    pinned = world()
    pinned.settle()
    data = next(obj for obj in objects(pinned) if obj["kind"] == "ConfigMap")["data"]
    assert data["digest"] == "sha256:" + 64 * "a"


def test_the_hot_fields_are_one_file_for_all_revisions_whose_hash_changes_with_them() -> None:
    w = canaried()
    (knobs,) = [obj for obj in objects(w) if obj["metadata"]["name"] == "sentiment-knobs"]
    text = knobs["data"]["knobs.json"]
    assert Knobs.model_validate_json(text) == Knobs()
    w.edit(batching={"maxBatch": 8})
    spec = w.observed().resource.spec
    assert spec is not None
    assert knobs_hash(knobs_text(spec)) != knobs_hash(text)
    assert Knobs.model_validate_json(knobs_text(spec)).max_batch == 8


def test_the_service_selects_the_routers_and_each_revision_has_addresses_of_its_own() -> None:
    services = {obj["metadata"]["name"]: obj["spec"] for obj in objects(canaried()) if obj["kind"] == "Service"}
    assert len(services) == 3
    main = services.pop("sentiment")
    assert main["selector"] == {names.LABEL_COMPONENT: names.COMPONENT_ROUTER}
    assert (main["ports"][0]["port"], main["ports"][0]["targetPort"]) == (80, "http")
    for name, spec in services.items():
        assert spec["clusterIP"] == "None"
        assert spec["publishNotReadyAddresses"] is True
        assert name == f"sentiment-{spec['selector'][names.LABEL_REVISION]}"


def test_only_the_router_reaches_the_ports_of_inference() -> None:
    (policy,) = [obj["spec"] for obj in objects(world()) if obj["kind"] == "NetworkPolicy"]
    inference, admin = policy["ingress"]
    assert inference["ports"] == [{"port": 8080, "protocol": "TCP"}, {"port": 8082, "protocol": "TCP"}]
    assert inference["from"] == [{"podSelector": {"matchLabels": {names.LABEL_COMPONENT: "router"}}}]
    assert "from" not in admin


def test_only_a_revision_that_was_recorded_with_a_port_of_grpc_is_asked_over_it() -> None:
    w = canaried()
    made = objects(w)
    records = {r.name: r for r in (record_of(obj) for obj in made if obj["kind"] == "ControllerRevision")}
    assert all(each.serves_grpc for each in records.values())
    assert [port["name"] for port in pod(w)["spec"]["containers"][0]["ports"]] == ["http", "admin", "grpc"]
    assert [p["name"] for p in _headless(made)[0]["spec"]["ports"]] == ["http", "grpc"]

    old = next(iter(records.values()))
    template = json.loads(json.dumps(old.pod_template))
    (serve,) = template["spec"]["containers"]
    serve["ports"] = [port for port in serve["ports"] if port["name"] != "grpc"]
    observed = w.observed(records={**records, old.name: replace(old, pod_template=template)})
    decided = plan(observed, w.now)
    intent = route_intent(observed, decided)
    assert intent is not None
    assert {backend.revision: backend.grpc for backend in intent.backends} == {
        name: name != old.name for name in records
    }
    ports = {
        obj["metadata"]["name"]: len(obj["spec"]["ports"]) for obj in _headless(desired_objects(observed, decided))
    }
    assert ports == {names.revision_object("sentiment", name): 1 + (name != old.name) for name in records}


def _headless(made: list[Object]) -> list[Object]:
    return [obj for obj in made if obj["kind"] == "Service" and obj["spec"].get("clusterIP") == "None"]


def test_each_selector_selects_the_pods_of_the_template_and_no_other_revision() -> None:
    deployments = [obj for obj in objects(canaried()) if obj["kind"] == "Deployment"]
    for one in deployments:
        wanted = one["spec"]["selector"]["matchLabels"].items()
        for other in deployments:
            selected = wanted <= other["spec"]["template"]["metadata"]["labels"].items()
            assert selected is (one is other)


def test_roles_are_noted_on_the_records_of_those_that_served() -> None:
    w = world()
    w.pass_()
    annotations = [o["metadata"].get("annotations", {}) for o in objects(w) if o["kind"] == "ControllerRevision"]
    assert annotations == [{names.ANNOTATION_ROLE: ""}], "said, or one that was noted before would stay"
    w.settle()
    w.edit(artifact=B)
    w.settle()
    noted = {record_of(obj).name: record_of(obj).role for obj in objects(w) if obj["kind"] == "ControllerRevision"}
    assert noted == {w.role(Role.STABLE): Role.STABLE, w.role(Role.PREVIOUS): Role.PREVIOUS}


def test_a_record_keeps_its_revision_when_its_labels_are_removed_by_hand() -> None:
    w = world()
    w.settle()
    revision = next(obj for (kind, _), obj in w.objects.items() if kind == "ControllerRevision")
    del revision["metadata"]["labels"]
    assert record_of(revision).name == w.role(Role.STABLE)


@pytest.mark.parametrize("digest", ["", "latest", "sha256:5", f"sha256:{64 * 'A'}"])
def test_a_digest_that_is_none_pins_nothing_and_is_found_again(digest: str) -> None:
    w = world()
    w.settle()
    revision = next(obj for (kind, _), obj in w.objects.items() if kind == "ControllerRevision")
    pinned = record_of(revision).pin
    revision["metadata"]["annotations"][names.ANNOTATION_DIGEST] = digest
    assert record_of(revision).pin is None
    assert pinned in {record_of(obj).pin for obj in objects(w) if obj["kind"] == "ControllerRevision"}


@pytest.mark.parametrize("part", ["base", "cold", "image", "podTemplate", "config"])
def test_a_record_that_lacks_a_part_names_it(part: str) -> None:
    w = world()
    w.settle()
    revision = next(obj for (kind, _), obj in w.objects.items() if kind == "ControllerRevision")
    for garbage in ({}, {part: 7}):
        data = {key: value for key, value in revision["data"].items() if key != part} | garbage
        with pytest.raises(ValueError, match=rf"data\.{part}"):
            record_of({**revision, "data": data})
    with pytest.raises(ValueError, match="data"):
        record_of({key: value for key, value in revision.items() if key != "data"})


def test_an_unknown_role_on_a_record_reads_as_none() -> None:
    w = world()
    w.settle()
    revision = next(obj for (kind, _), obj in w.objects.items() if kind == "ControllerRevision")
    revision["metadata"]["annotations"][names.ANNOTATION_ROLE] = "Emperor"
    assert record_of(revision).role is None


def test_another_default_image_and_operator_change_no_deployment() -> None:
    w = canaried()
    before = [obj for obj in objects(w) if obj["kind"] == "Deployment"]
    w.image = "runtime:2"
    assert [obj for obj in objects(w) if obj["kind"] == "Deployment"] == before


def test_a_changed_renderer_changes_no_pod_that_is_there_and_renders_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    def renderer(*args: Any, **kwargs: Any) -> Object:
        template = podtemplate.pod_template(*args, **kwargs)
        return {**template, "spec": {**template["spec"], "hostname": "new"}}

    w = canaried()
    writes = w.writes
    monkeypatch.setattr(record, "pod_template", renderer)
    w.pass_()
    assert w.writes == writes
    w.edit(artifact={"uri": "s3://m/c"})
    w.settle()
    stable = w.objects["Deployment", f"sentiment-{w.role(Role.STABLE)}"]
    canary = w.objects["Deployment", f"sentiment-{w.role(Role.CANARY)}"]
    assert stable["spec"]["template"]["spec"]["hostname"] == "new"
    assert "hostname" not in canary["spec"]["template"]["spec"]


def test_a_plan_that_keeps_its_hands_off_desires_nothing_and_prunes_nothing() -> None:
    w = canaried()
    observed = w.observed(namespace_terminating=True)
    decided = plan(observed, w.now)
    assert desired_objects(observed, decided) == []
    assert not any(prunable(obj, decided) for obj in w.objects.values())


def test_what_is_not_desired_may_go_unless_its_revision_should_have_pods() -> None:
    w = canaried()
    decided = plan(w.observed(), w.now)
    live = w.objects["Deployment", f"sentiment-{w.role(Role.CANARY)}"]
    unlabelled = {**live, "metadata": {**live["metadata"], "labels": {}}}
    foreign = {**live, "metadata": {**live["metadata"], "name": "sentiment-00000000"}}
    assert not prunable(live, decided)
    assert not prunable(unlabelled, decided), "a label is soon removed by hand"
    assert prunable(foreign, decided)
    assert prunable({"metadata": {"name": "sentiment"}}, decided)


def test_forgotten_records_are_not_desired() -> None:
    w = canaried()
    decided = replace(plan(w.observed(), w.now), targets=(), forget=tuple(w.observed().records))
    assert not [obj for obj in desired_objects(w.observed(), decided) if obj["kind"] == "ControllerRevision"]
