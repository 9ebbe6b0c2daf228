"""What the chart may not do: run as root, hand out tokens, hold rights that the operator does not use."""

from pathlib import Path

from tests.charts.chart import Object, of_kind, only, render


def _pod(objects: list[Object]) -> Object:
    pod: Object = only(objects, "Deployment")["spec"]["template"]["spec"]
    return pod


def test_the_operator_obeys_the_restricted_pod_security_level(helm_program: Path) -> None:
    pod = _pod(render(helm_program))
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
    for container in pod["containers"]:
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["readOnlyRootFilesystem"] is True
        assert context["capabilities"] == {"drop": ["ALL"]}
    assert all({"emptyDir"} == volume.keys() - {"name"} for volume in pod["volumes"])


def test_the_operator_has_requests_a_memory_limit_and_probes(helm_program: Path) -> None:
    (container,) = _pod(render(helm_program))["containers"]
    assert container["resources"]["requests"].keys() == {"cpu", "memory"}
    assert "memory" in container["resources"]["limits"]
    ports = {port["name"] for port in container["ports"]}
    for probe in ("livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["path"] == "/healthz"
        assert container[probe]["httpGet"]["port"] in ports


def test_only_the_operators_pod_mounts_a_token(helm_program: Path) -> None:
    objects = render(helm_program)
    assert only(objects, "ServiceAccount")["automountServiceAccountToken"] is False
    assert _pod(objects)["automountServiceAccountToken"] is True


def test_there_is_one_operator_at_a_time(helm_program: Path) -> None:
    spec = only(render(helm_program), "Deployment")["spec"]
    assert spec["replicas"] == 1
    assert spec["strategy"] == {"type": "Recreate"}


def test_nothing_that_the_release_leaves_behind_needs_the_operator(helm_program: Path) -> None:
    kinds = {obj["kind"] for obj in render(helm_program)}
    assert not {kind for kind in kinds if "Webhook" in kind or "AdmissionPolicy" in kind}


def test_people_keep_their_rights_over_models_when_the_release_goes(helm_program: Path) -> None:
    roles = [role for role in of_kind(render(helm_program), "ClusterRole") if "aggregationRule" not in role]
    shared = [role for role in roles if any("aggregate-to" in label for label in role["metadata"]["labels"])]
    assert len(shared) == 2
    assert all(role["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep" for role in shared)


def test_with_namespaces_the_release_has_no_rights_in_the_rest_of_the_cluster(helm_program: Path) -> None:
    objects = render(helm_program, {"watchNamespaces": ["prod", "staging"], "crds": {"install": False}})
    assert not of_kind(objects, "ClusterRole")
    assert not of_kind(objects, "ClusterRoleBinding")
    assert {role["metadata"]["namespace"] for role in of_kind(objects, "Role")} == {"prod", "staging"}
    arguments = _pod(objects)["containers"][0]["args"]
    assert [a for a in arguments if a.startswith("--namespace=")] == ["--namespace=prod", "--namespace=staging"]
