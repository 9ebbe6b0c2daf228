"""What docs/traffic.md says about gRPC is so."""

import re
from pathlib import Path

from google.protobuf import json_format
from headway_runtime.protocols.grpc import tensors
from headway_runtime.protocols.grpc.proto import inference_pb2 as pb
from headway_runtime.protocols.grpc.wire import Status

ROOT = Path(__file__).parents[2]
SECTION = (ROOT / "docs" / "traffic.md").read_text().partition("\n## gRPC\n")[2].partition("\n## ")[0]


def test_the_request_by_hand_is_one() -> None:
    found = re.search(r"-d '(\{.*?\})' \\\n  \S+ inference\.GRPCInferenceService/ModelInfer", SECTION, re.DOTALL)
    assert found is not None
    request = json_format.Parse(found[1], pb.ModelInferRequest())
    assert request.model_name == "sentences"
    assert {name: list(value.shape) for name, value in tensors.given(request).inputs.items()} == {
        "ids": [1, 3],
        "mask": [1, 3],
    }


def test_the_protocols_file_is_where_it_says() -> None:
    path, file = re.findall(r"-import-path (\S+) -proto (\S+)", SECTION)[0]
    assert (ROOT / path / file).is_file()


def test_the_python_example_compiles() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", SECTION, re.DOTALL)
    compile(code, "docs/traffic.md", "exec")


def test_the_table_names_every_status_and_no_other() -> None:
    assert set(re.findall(r"^\| `([A-Z_]+)` \|", SECTION, re.MULTILINE)) == {status.name for status in Status} - {"OK"}
