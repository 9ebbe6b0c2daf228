"""The golden file of revisions: what a release hashes and renders. Every later release re-reads it.

`python -m tests.unit.golden_revisions` writes the file of the present version, and refuses to change one that a release
has shipped (its tag exists): a changed hash would restart every model of every user.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

from headway_api.revision import canary_cold_fields, cold_fields, revision_name
from headway_api.types import Spec
from headway_operator.desired import controller_revision, new_record
from headway_operator.observed import Observed, Resource, RouteState

VERSION = "0.1.0"
FOLDER = Path(__file__).parent / "golden"

_AS_IN_POD = {
    "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []}},
    "drainTimeout": "90s",
    "env": [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
    "imagePullSecrets": [{"name": "pull"}],
    "nodeSelector": {"disk": "ssd", "node-role.kubernetes.io/model": ""},
    "podAnnotations": {"team": "search"},
    "podLabels": {"team": "search"},
    "priorityClassName": "high",
    "resources": {"requests": {"cpu": "2", "memory": "4Gi"}, "limits": {"memory": "4Gi"}},
    "runtimeImage": "registry.example/runtime:7",
    "serviceAccountName": "models",
    "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
}
SPECS: dict[str, dict[str, Any]] = {
    "smallest": {"artifact": {"uri": "s3://models/a.pt2"}, "device": {"kind": "cpu"}},
    "every hot field": {
        "artifact": {"uri": "s3://models/a.pt2", "digest": "sha256:" + 64 * "0"},
        "device": {"kind": "cpu"},
        "replicas": 3,
        "batching": {"maxBatch": 8, "maxWait": "5ms", "queue": {"capacity": 9, "bytes": "1Mi", "timeout": "1s"}},
        "canary": {"artifact": {"uri": "s3://models/b.pt2"}, "weight": 10},
        "rollout": {"progressDeadline": "5m"},
        "rollback": {"keep": "None"},
    },
    "every cold field": {
        "artifact": {"uri": "s3://models/a.pt2", "credentials": {"secretName": "models-read"}},
        "device": {"kind": "gpu", "resourceName": "amd.com/gpu"},
        "batching": {"shapeBuckets": {"batch": [1, 4], "sequence": [32, 64]}, "dimensions": {"sequence": "ids.1"}},
        "canary": {"artifact": {"uri": "s3://models/b.pt2", "credentials": {"secretName": "other"}}, "weight": 1},
        "template": _AS_IN_POD,
    },
    "trusted and verified": {
        "artifact": {
            "uri": "s3://models/a.pt2",
            "program": "encoder",
            "trust": {
                "require": "Signature",
                "publicKeys": {"secretName": "signers"},
                "builderKeys": {"secretName": "builders"},
            },
        },
        "device": {"kind": "cpu"},
        "verification": {"onMismatch": "Warn", "rtol": 0.01, "atol": 0.1},
        "canary": {"artifact": {"program": "decoder"}, "weight": 1},
        "template": {"sandbox": "Require"},
    },
    "a decoder": {
        "artifact": {"uri": "s3://models/chat.pt2"},
        "device": {"kind": "cpu"},
        "precision": "Int8",
        "batching": {"policy": "Continuous", "maxBatch": 32},
        "generation": {
            "maxLength": 4096,
            "cacheBytes": "2Gi",
            "cacheType": "BFloat16",
            "speculation": {"method": "Draft", "tokens": 3, "program": "small"},
            "stepTokens": 128,
            "prefixCache": False,
        },
    },
    "introduced defaults": {
        "artifact": {"uri": "s3://models/a.pt2", "trust": {"require": "None"}},
        "device": {"kind": "gpu", "resourceName": "nvidia.com/gpu"},
        "precision": "Exported",
        "generation": {"cacheType": "Float32"},
        "verification": {"onMismatch": "Block"},
        "template": {"drainTimeout": "60s", "tolerations": [], "sandbox": "BestEffort"},
    },
}


def observed(spec: dict[str, Any]) -> Observed:
    """A ModelDeployment with this spec, and nothing else."""
    resource = Resource("sentiment", "prod", "uid-1", 1, {}, Spec.model_validate(spec), None, {})
    return Observed(resource, {}, {}, (), RouteState(), default_image="registry.example/runtime:0.1.0")


def entry(given: dict[str, Any], refresh: str | None = None) -> dict[str, Any]:
    """What the present code makes of a spec: hashes, and the record of the stable revision as an object."""
    spec = Spec.model_validate(given)
    cold, canary = cold_fields(spec, refresh), canary_cold_fields(spec, refresh)
    seen = observed(given)
    record = new_record(seen, cold, name=revision_name(cold), base=revision_name(cold), number=1, pin=None)
    return {
        "spec": given,
        "refresh": refresh,
        "stable": revision_name(cold),
        "salted": revision_name(cold, salt="sha256:" + 64 * "f"),
        "canary": revision_name(canary) if canary else None,
        "record": controller_revision(seen.resource, record, None),
    }


def entries() -> dict[str, Any]:
    """The whole file."""
    refreshed = {"refreshed": entry(SPECS["smallest"], "2026-11-29")}
    return {name: entry(spec) for name, spec in SPECS.items()} | refreshed


def main() -> None:
    """Write the file of the present version."""
    tags = subprocess.run(["git", "tag", "--list", f"v{VERSION}"], capture_output=True, text=True, check=True).stdout
    if tags.strip():
        raise SystemExit(f"v{VERSION} is released; a changed file would hide that its revisions would restart")
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"revisions_{VERSION}.json"
    path.write_text(json.dumps(entries(), indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
