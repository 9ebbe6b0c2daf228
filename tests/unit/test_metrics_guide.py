"""docs/metrics.md names every metric, by the name that Prometheus sees, and none that does not exist."""

import re
from pathlib import Path

import headway_operator.metrics
import headway_runtime.metrics
import yaml
from headway_api import names
from headway_operator.router.podtemplate import Image, pod_template
from headway_operator.router.render import Site
from prometheus_client import CollectorRegistry

HERE = Path(__file__).resolve().parent
PAGE = (HERE.parents[1] / "docs/metrics.md").read_text()
SUFFIX = {"counter": "_total", "info": "_info"}


def exposed(registry: CollectorRegistry) -> set[str]:
    return {family.name + SUFFIX.get(family.type, "") for family in registry.collect()}


def named() -> set[str]:
    """The metrics in the tables."""
    rows = [line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| `headway_")]
    return {name for cell in rows for name in re.findall(r"`(\w+)`", cell)}


def test_the_page_names_what_is_exposed() -> None:
    pod = headway_runtime.metrics.Metrics()
    pod.generates(1)
    ours = exposed(headway_operator.metrics.Metrics().registry) | exposed(pod.registry)
    assert named() == {name for name in ours if name.startswith("headway_")}


def test_the_questions_ask_for_metrics_that_exist() -> None:
    asked = set(re.findall(r"headway_(?!dev_|operator)\w+", PAGE))
    assert {re.sub(r"(?<=_seconds)_bucket$|(?<=_rows)_(?:sum|count)$", "", name) for name in asked} <= named()


def test_the_monitors_select_pods_and_ports_that_exist() -> None:
    (block,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)
    models, routers = (monitor["spec"] for monitor in yaml.safe_load_all(block))
    assert models["selector"]["matchLabels"] == {names.LABEL_COMPONENT: names.COMPONENT_RUNTIME}
    assert models["podTargetLabels"] == [names.LABEL_MODEL, names.LABEL_REVISION]
    recorded = (HERE / "golden/revisions_0.1.0.json").read_text()  # what the pods of models are
    for endpoint in models["podMetricsEndpoints"]:
        assert re.search(rf'"name": *"{endpoint["port"]}"', recorded)
    assert routers["selector"]["matchLabels"] == {names.LABEL_COMPONENT: names.COMPONENT_ROUTER}
    (envoy,) = pod_template(Site("prod"), Image("router:1"), {})["spec"]["containers"]
    ports = {port["name"] for port in envoy["ports"]}
    assert {endpoint["port"] for endpoint in routers["podMetricsEndpoints"]} <= ports
