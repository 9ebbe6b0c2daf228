"""What a user gets wrong: each time a condition names the field or the fact, and what served goes on serving."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import hostile_files, untrusted
from tests.e2e.cluster_access import Object, conditions
from tests.e2e.platform import BUCKET, CREDENTIALS, Platform, publish
from tests.e2e.small import Small, export, small_world

NAMESPACE = "headway-bad-input"
SECRET = "AWS_SECRET_ACCESS_KEY"


@pytest.fixture(scope="module")
def world(platform: Platform, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Small]:
    directory: Path = tmp_path_factory.mktemp("small")
    with small_world(platform, NAMESPACE, directory) as small:
        publish(platform, NAMESPACE, {f"small/{path.name}": path for path in _files(directory)})
        right = platform.access.get(NAMESPACE, "secret", CREDENTIALS)["data"]
        wrong: Object = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "wrong", "namespace": NAMESPACE}}
        platform.access.apply({**wrong, "data": {**right, SECRET: "d3Jvbmc="}})
        yield small


def _files(directory: Path) -> Iterator[Path]:
    text = directory / "notes.pt2"
    text.write_text("this is not an archive")
    yield text
    honest = export(directory, 1)
    yield hostile_files.with_wrong_answers(honest, directory / "wrong-answers.pt2")
    yield hostile_files.with_wrong_shape(honest, directory / "wrong-shape.pt2")
    yield untrusted.hungry(directory / "hungry.pt2")


@dataclass(frozen=True)
class Case:
    """`change` is merged into a good spec; `says` is what the message must name."""

    change: dict[str, Any]
    condition: str
    reason: str
    says: tuple[str, ...]


CASES = {
    "artifact missing": Case(
        {"artifact": {"uri": f"s3://{BUCKET}/small/none.pt2"}}, "ArtifactVerified", "NotFound", ("spec.artifact.uri",)
    ),
    "not a pt2": Case(
        {"artifact": {"uri": f"s3://{BUCKET}/small/notes.pt2"}}, "ArtifactVerified", "NotAnArchive", ("archive",)
    ),
    "digest mismatch": Case(
        {"artifact": {"digest": f"sha256:{'0' * 64}"}}, "ArtifactVerified", "DigestMismatch", ("sha256:0000",)
    ),
    "wrong credentials": Case(
        {"artifact": {"credentials": {"secretName": "wrong"}}}, "ArtifactVerified", "Forbidden", ("credentials",)
    ),
    "credentials secret missing": Case(
        {"artifact": {"credentials": {"secretName": "nobody"}}}, "UpToDate", "SecretNotFound", ("nobody",)
    ),
    "image cannot be pulled": Case(
        {"template": {"runtimeImage": "localhost/nowhere:1"}}, "UpToDate", "ImagePullFailed", ("localhost/nowhere:1",)
    ),
    "model larger than the pod's memory": Case(
        {"template": {"resources": {"requests": {"memory": "64Mi"}, "limits": {"memory": "64Mi"}}}},
        "UpToDate",
        "OutOfMemory",
        ("limits.memory",),
    ),
    "program that the archive does not have": Case(
        {"artifact": {"program": "decoder"}},
        "ArtifactVerified",
        "UnknownProgram",
        ("spec.artifact.program", "decoder", "model"),
    ),
    "shapes that are not so": Case(
        {"artifact": {"uri": f"s3://{BUCKET}/small/wrong-shape.pt2"}},
        "ArtifactVerified",
        "ShapeMismatch",
        ("[4, 5]", "[4, 4]"),
    ),
    "largest bucket beyond the pod's memory": Case(
        {
            "artifact": {"uri": f"s3://{BUCKET}/small/hungry.pt2"},
            "batching": {"shapeBuckets": {"batch": [1, 32]}},
            "template": {"resources": {"limits": {"memory": "1Gi"}}},
        },
        "Accepted",
        "WillNotFit",
        ("batch=32", "1.0 GiB", "spec.template.resources.limits.memory", "shapeBuckets"),
    ),
    "golden answers that are not reproduced": Case(
        {"artifact": {"uri": f"s3://{BUCKET}/small/wrong-answers.pt2"}},
        "UpToDate",
        "ParityFailed",
        ("spec.verification", "onMismatch: Warn"),
    ),
    "bucket outside the program's range": Case(
        {"batching": {"shapeBuckets": {"batch": [1, 64]}}},
        "Accepted",
        "BucketOutOfRange",
        ("spec.batching.shapeBuckets.batch", "64", "32"),
    ),
    "unknown dimension": Case(
        {"batching": {"shapeBuckets": {"sequence": [16]}}}, "Accepted", "UnknownDimension", ("sequence", "batch")
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_bad_change_is_named_and_the_version_that_served_goes_on(world: Small, case: Case) -> None:
    stable = world.revision("Stable")
    with world.traffic() as traffic:
        world.apply(**case.change)
        message = world.wait_reason(case.condition, case.reason)
        assert all(part in message for part in case.says), message
        world.apply()
        world.wait("Ready", "UpToDate", "Accepted", "ArtifactVerified", "Routed")
    assert not traffic.failures, traffic.failures[:3]
    assert world.revision("Stable") == stable


def test_golden_answers_that_are_not_reproduced_may_be_served_by_consent_and_are_said(world: Small) -> None:
    world.apply(artifact={"uri": f"s3://{BUCKET}/small/wrong-answers.pt2"}, verification={"onMismatch": "Warn"})
    resource = world.wait("Ready", "UpToDate", "Routed")
    ready = conditions(resource)["Ready"]
    assert ready["reason"] == "AnswersDiffer"
    stable = world.revision("Stable")
    assert f"answers of revision {stable} differ" in ready["message"]
    (shown,) = [revision for revision in resource["status"]["revisions"] if revision["name"] == stable]
    assert shown["parity"] == "Differs"
    world.apply()
    world.wait("Ready", "UpToDate", "Routed")
