"""The generated modules are those of the .proto files, and mean on the wire what other clients and servers mean."""

import re

import pytest
from google.protobuf import descriptor_pool
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from headway_runtime.protocols.grpc.proto import __main__ as generate
from headway_runtime.protocols.grpc.proto import health_pb2, inference_pb2
from tritonclient.grpc import service_pb2 as triton

OURS = inference_pb2.DESCRIPTOR
METHODS = [method.name for method in OURS.services_by_name["GRPCInferenceService"].methods]


@pytest.mark.parametrize("name", generate.PROTOCOLS)
def test_the_generated_module_is_of_the_proto_file_as_it_is(name: str) -> None:
    module = (generate.FOLDER / f"{name}_pb2.py").read_text()
    found = re.search(rf"^# sha256 of {name}\.proto: (\w+)$", module, re.MULTILINE)
    assert found is not None
    assert found[1] == generate.digest(name), "run python -m headway_runtime.protocols.grpc.proto"


def test_the_types_are_not_in_the_pool_that_clients_use() -> None:
    found = descriptor_pool.Default().FindMessageTypeByName("inference.ModelInferRequest")
    assert found is triton.ModelInferRequest.DESCRIPTOR
    assert found is not inference_pb2.ModelInferRequest.DESCRIPTOR


@pytest.mark.parametrize("name", METHODS)
def test_every_method_takes_and_returns_what_tritonclient_sends_and_reads(name: str) -> None:
    ours = OURS.services_by_name["GRPCInferenceService"].methods_by_name[name]
    theirs = triton.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods_by_name[name]
    assert ours.full_name == theirs.full_name
    assert (ours.input_type.full_name, ours.output_type.full_name) == (
        theirs.input_type.full_name,
        theirs.output_type.full_name,
    )
    assert (ours.client_streaming, ours.server_streaming) == (theirs.client_streaming, theirs.server_streaming)
    for mine, other in ((ours.input_type, theirs.input_type), (ours.output_type, theirs.output_type)):
        _alike(mine, other, set())


def test_data_types_have_the_numbers_of_tritonclient() -> None:
    theirs = triton.ModelConfigResponse.DESCRIPTOR.fields_by_name["config"].message_type
    kind = theirs.fields_by_name["input"].message_type.fields_by_name["data_type"].enum_type
    assert dict(inference_pb2.DataType.items()) == {value.name: value.number for value in kind.values}


def test_the_health_protocol_has_the_standard_names_and_numbers() -> None:
    service = health_pb2.DESCRIPTOR.services_by_name["Health"]
    assert service.full_name == "grpc.health.v1.Health"
    assert [(m.name, m.server_streaming) for m in service.methods] == [("Check", False), ("Watch", True)]
    assert health_pb2.HealthCheckRequest(service="a").SerializeToString() == b"\x0a\x01a"
    assert health_pb2.HealthCheckResponse(status="NOT_SERVING").SerializeToString() == b"\x08\x02"  # type: ignore[arg-type]


def _alike(ours: Descriptor, theirs: Descriptor, seen: set[str]) -> None:
    """Every field of ours is theirs: number, kind, cardinality. They may have more."""
    if ours.full_name in seen:
        return
    seen.add(ours.full_name)
    for field in ours.fields:
        other = theirs.fields_by_name.get(field.name)
        assert other is not None, f"{ours.full_name}.{field.name} is not theirs"
        assert _facts(field) == _facts(other), field.full_name
        if field.message_type is not None:
            _alike(field.message_type, other.message_type, seen)


def _facts(field: FieldDescriptor) -> tuple[object, ...]:
    oneof = field.containing_oneof.name if field.containing_oneof is not None else None
    return field.number, field.type, field.is_repeated, oneof
