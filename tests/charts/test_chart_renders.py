"""The chart over a matrix of values: what it renders is valid, and what cannot be honoured is refused."""

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest

from tests.charts.chart import CHART, HelmError, helm, of_kind, only, render

KUBERNETES = "1.37"
SERVICE_MONITOR = {"metrics": {"serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}}}}

MATRIX: dict[str, dict[str, Any]] = {
    "defaults": {},
    "no-crd": {"crds": {"install": False}},
    "namespaces": {"watchNamespaces": ["prod", "staging"]},
    "own-account": {"serviceAccount": {"create": False, "name": "shared"}},
    "annotated-account": {"serviceAccount": {"annotations": {"example.com/role": "reader"}}},
    "digests": {"image": {"operator": {"digest": "sha256:" + "0" * 64}, "runtime": {"tag": "1.2.3"}}},
    "pulled-with-a-secret": {"imagePullSecrets": ["registry-read"], "image": {"pullPolicy": "Always"}},
    "placed": {
        "nodeSelector": {"pool": "system"},
        "tolerations": [{"key": "system", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "system-cluster-critical",
        "podLabels": {"team": "ml"},
        "podAnnotations": {"example.com/scrape": "true"},
        "env": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
        "resources": {"limits": {"cpu": 1, "memory": "1Gi"}},
    },
    "policy-of-places": {"policy": {"enabled": True, "allowedUriPrefixes": ["s3://models/", "file:///mnt/models/"]}},
    "policy-of-signatures": {
        "policy": {
            "enabled": True,
            "requireSignature": True,
            "publicKeysSecret": "signers",
            "builderKeysSecret": "builders",
            "credentialsSecrets": ["models-read"],
            "runtimeImages": ["registry.example/headway-runtime@sha256:" + "0" * 64],
            "namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "Exists"}]},
        }
    },
    "no-metrics": {"metrics": {"service": False}},
    "service-monitor": SERVICE_MONITOR,
    "dashboard": {"metrics": {"dashboard": {"enabled": True, "labels": {"grafana_dashboard": "yes"}}}},
}


@pytest.fixture(params=MATRIX, scope="module")
def values(request: pytest.FixtureRequest) -> dict[str, Any]:
    return MATRIX[request.param]


def test_helm_lint_finds_nothing(helm_program: Path, values: dict[str, Any]) -> None:
    report = helm(helm_program, "lint", "--strict", str(CHART), values=values)
    assert "WARNING" not in report


def test_every_object_is_valid_and_in_the_right_namespace(helm_program: Path, values: dict[str, Any]) -> None:
    objects = render(helm_program, values)
    assert {"Deployment"} <= {obj["kind"] for obj in objects}
    for obj in objects:
        if obj["kind"] != "ServiceMonitor":  # not a kind of Kubernetes itself
            kubernetes_validate.validate(obj, KUBERNETES, strict=True)
        cluster_wide = obj["kind"].startswith(("ClusterRole", "CustomResourceDefinition", "ValidatingAdmissionPolicy"))
        assert ("namespace" in obj["metadata"]) is not cluster_wide


def test_names_are_unique_and_short_for_any_release(helm_program: Path) -> None:
    for release in ("headway", "ml", "a" * 53, "my-headway-" + "b" * 42):
        objects = render(helm_program, release=release)
        names = [(obj["kind"], obj["metadata"]["name"]) for obj in objects]
        assert len(set(names)) == len(names)
        assert all(len(name) <= 63 for kind, name in names if kind != "CustomResourceDefinition")


def test_the_usual_release_name_gives_the_usual_object_name(helm_program: Path) -> None:
    assert only(render(helm_program), "Deployment")["metadata"]["name"] == "headway-operator"


def test_the_crd_is_kept_when_the_release_goes_and_can_be_left_out(helm_program: Path) -> None:
    crd = only(render(helm_program), "CustomResourceDefinition")
    assert crd["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert not of_kind(render(helm_program, {"crds": {"install": False}}), "CustomResourceDefinition")


def test_images_default_to_the_charts_version_and_a_digest_wins(helm_program: Path) -> None:
    digest = "sha256:" + "a" * 64
    image = {"operator": {"repository": "r/operator", "digest": digest}, "router": {"tag": "9"}}
    container = only(render(helm_program, {"image": image}), "Deployment")["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == f"r/operator@{digest}"
    assert "--runtime-image=headway/runtime:0.1.0" in container["args"]
    assert "--router-image=headway/router:9" in container["args"]


def test_routers_are_given_the_secrets_with_which_their_image_is_pulled(helm_program: Path) -> None:
    values = {"router": {"imagePullSecrets": ["registry-read", "other"]}}
    (container,) = only(render(helm_program, values), "Deployment")["spec"]["template"]["spec"]["containers"]
    assert [arg for arg in container["args"] if "pull" in arg] == [
        "--router-pull-secret=registry-read",
        "--router-pull-secret=other",
    ]


PREFIXES = {
    True: ("s3://models/", "https://models.example.com:8443/team/a/", "file:///mnt/", "az://container/a~b/"),
    False: (
        *("s3://models", "s3://", "s3:///", "https://", "file://", "models/", "s3:/models/", "ftp://models/"),
        *("s3://models//", "s3://models/../", "s3://models/./", "s3://models/a%2f/", "s3://models/a b/", "s3://*/"),
        *('s3://models/"/', "s3://models/'/", "https://models.example.com@evil/", "s3://models/?/", "s3://models/\n/"),
    ),
}


@pytest.mark.parametrize(("prefix", "fine"), [(each, fine) for fine, them in PREFIXES.items() for each in them])
def test_a_prefix_of_the_policy_is_a_place_with_its_last_slash(helm_program: Path, prefix: str, fine: bool) -> None:
    values = {"policy": {"enabled": True, "allowedUriPrefixes": [prefix]}}
    if fine:
        assert prefix in str(only(render(helm_program, values), "ValidatingAdmissionPolicy"))
        return
    with pytest.raises(HelmError, match="policy/allowedUriPrefixes/0"):
        render(helm_program, values)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"watchNamespace": "prod"}, "watchNamespace"),
        ({"crds": {"install": "no"}}, "crds/install"),
        ({"image": {"operator": {"digest": "latest"}}}, "image/operator/digest"),
        ({"metrics": {"serviceMonitor": {"interval": "often"}}}, "metrics/serviceMonitor/interval"),
        ({"metrics": {"service": False, "serviceMonitor": {"enabled": True}}}, "set metrics.service: true"),
        ({"serviceAccount": {"create": False}}, "write the name of the ServiceAccount"),
        ({"policy": {"enabled": True}}, "it would allow everything"),
        ({"policy": {"enabled": True, "requireSignature": True, "publicKeysSecret": "A"}}, "policy/publicKeysSecret"),
        (
            {"policy": {"enabled": True, "allowedUriPrefixes": ["s3://m/"], "publicKeysSecret": "signers"}},
            "set policy.requireSignature: true",
        ),
    ],
)
def test_values_that_cannot_be_honoured_are_refused_by_name(
    helm_program: Path, wrong: dict[str, Any], said: str
) -> None:
    with pytest.raises(HelmError, match=said):
        render(helm_program, wrong)
