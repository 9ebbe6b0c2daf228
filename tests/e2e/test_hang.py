"""A device that does not come back: a run without end is noticed, and the pod begins anew."""

import time
import urllib.error
import urllib.request
from collections.abc import Iterator

import orjson
import pytest
import torch
from headway_runtime.export import Size, export_model
from torch._higher_order_ops.scan import scan

from tests.e2e.cluster_access import wait_until
from tests.e2e.platform import BUCKET, Platform, publish
from tests.e2e.small import BODY, FEATURES, MODEL, Small, small_world

NAMESPACE = "headway-hang"
WIDTH, STEPS = 1024, 20_000  # products of matrices: half an hour of a processor


class Hanging(torch.nn.Module):
    """FP32 [batch, FEATURES] -> the same; one number above 1e30 keeps the device busy for longer than anybody waits."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def busy(x: torch.Tensor) -> torch.Tensor:
            last, _ = scan(
                lambda carry, step: (carry @ carry, step.clone()), x.new_zeros(WIDTH, WIDTH), x.new_zeros(STEPS)
            )
            return x + last.sum()

        return torch.cond(x.max() > 1e30, busy, lambda x: x + 1, (x,))


@pytest.fixture(scope="module")
def world(platform: Platform, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Small]:
    folder = tmp_path_factory.mktemp("hang")
    with small_world(platform, NAMESPACE, folder) as small:
        export_model(
            Hanging().eval(),
            {"x": torch.zeros(2, FEATURES)},
            dynamic_shapes={"x": {0: Size("batch", 1, 32)}},
            path=folder / "hanging.pt2",
        )
        publish(platform, NAMESPACE, {"small/hanging.pt2": folder / "hanging.pt2"})
        small.apply(artifact={"uri": f"s3://{BUCKET}/small/hanging.pt2"}, template={"drainTimeout": "2s"})
        small.wait("UpToDate", "Ready", "Routed")
        yield small


def ask(url: str, value: float, seconds: float) -> int | None:
    """Status of a request; None when there was no answer in time."""
    body = {"inputs": [BODY["inputs"][0] | {"data": [value] * FEATURES}]}
    request = urllib.request.Request(f"{url}/v2/models/{MODEL}/infer", orjson.dumps(body))
    try:
        with urllib.request.urlopen(request, timeout=seconds) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None


def restarts(world: Small) -> int:
    stable = world.revision("Stable")
    assert stable
    return sum(s["restartCount"] for pod in world.pods(stable) for s in pod["status"]["containerStatuses"])


def test_a_run_that_does_not_end_is_noticed_and_the_pod_begins_anew(world: Small) -> None:
    with world.platform.access.reach(NAMESPACE, MODEL) as url:
        assert ask(url, 0.5, 10) == 200
        assert ask(url, 2e30, 3) is None, "the program was meant to hang"
        began = time.monotonic()
        wait_until("a restart of the container", lambda: restarts(world) == 1, seconds=200, every=1)
        wait_until("an answer", lambda: ask(url, 0.5, 3) == 200, seconds=120, every=1)
        print(f"a hung run was replaced after {time.monotonic() - began:.0f} s")
    world.wait("Ready")
