"""The chart's CRD is the one in crds/, and both are what the types say."""

from pathlib import Path

import yaml
from headway_api import crd

from tests.charts.chart import only, render


def test_the_generated_files_are_current() -> None:
    for path, text in crd.files().items():
        assert (crd.ROOT / path).read_text() == text, f"{path}: run `make crds`"


def test_the_chart_installs_the_crd_of_the_repository(helm_program: Path) -> None:
    installed = only(render(helm_program), "CustomResourceDefinition")
    assert installed["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
    assert installed == yaml.safe_load((crd.ROOT / crd.CRD_FILE).read_text())
