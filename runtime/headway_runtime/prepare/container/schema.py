"""The honest ``.pt2`` format as a table (torch's export schema 8.x), and the one function that holds a document
against it.

Unknown fields and unknown members of a union are refused; torch ignores them, and then two readers see two programs.
What is left out of the table on purpose (custom objects, operators as arguments, tokens, gradients, losses) is
refused the same way.

Types: ``str int bool float``, ``list:T``, ``map:T`` (string keys), ``opt:T`` (may be null), or the name of a record
or a union below. A field written ``name=`` has a default and may be missing.
"""

from typing import Any

from headway_runtime.prepare.container.strict_json import MAX_STRING
from headway_runtime.prepare.errors import Refusal

SCHEMA_MAJOR = 8
SCHEMA_MINOR_MAX = 20

RECORDS: dict[str, dict[str, str]] = {
    "ExportedProgram": {
        "graph_module": "GraphModule",
        "opset_version": "map:int",
        "range_constraints": "map:RangeConstraint",
        "schema_version": "SchemaVersion",
        "verifiers=": "list:str",
        "torch_version=": "str",
        "guards_code=": "list:str",
    },
    "SchemaVersion": {"major": "int", "minor": "int"},
    "RangeConstraint": {"min_val": "opt:int", "max_val": "opt:int"},
    "GraphModule": {
        "graph": "Graph",
        "signature": "GraphSignature",
        "module_call_graph": "list:ModuleCallEntry",
        "metadata=": "map:str",
        "treespec_namedtuple_fields=": "map:NamedTupleDef",
    },
    "NamedTupleDef": {"field_names": "list:str"},
    "ModuleCallEntry": {"fqn": "str", "signature=": "opt:ModuleCallSignature"},
    "ModuleCallSignature": {
        "inputs": "list:Argument",
        "outputs": "list:Argument",
        "in_spec": "str",
        "out_spec": "str",
        "forward_arg_names=": "opt:list:str",
    },
    "Graph": {
        "inputs": "list:Argument",
        "outputs": "list:Argument",
        "nodes": "list:Node",
        "tensor_values": "map:TensorMeta",
        "sym_int_values": "map:SymInt",
        "sym_bool_values": "map:SymBool",
        "is_single_tensor_return=": "bool",
        "custom_obj_values=": "map:Never",
        "sym_float_values=": "map:SymFloat",
    },
    "Node": {
        "target": "str",
        "inputs": "list:NamedArgument",
        "outputs": "list:Argument",
        "metadata": "map:str",
        "is_hop_single_tensor_return=": "opt:bool",
        "name=": "opt:str",
    },
    "NamedArgument": {"name": "str", "arg": "Argument", "kind=": "opt:int"},
    "TensorMeta": {
        "dtype": "int",
        "sizes": "list:SymInt",
        "requires_grad": "bool",
        "device": "Device",
        "strides": "list:SymInt",
        "storage_offset": "SymInt",
        "layout": "int",
    },
    "Device": {"type": "str", "index=": "opt:int"},
    "SymExpr": {"expr_str": "str", "hint=": "opt:SymExprHint"},
    "TensorArgument": {"name": "str"},
    "GraphArgument": {"name": "str", "graph": "Graph"},
    "ComplexValue": {"real": "float", "imag": "float"},
    "GraphSignature": {"input_specs": "list:InputSpec", "output_specs": "list:OutputSpec"},
    "UserInputSpec": {"arg": "Argument"},
    "InputToConstantInputSpec": {"name": "str", "value": "ConstantValue"},
    "InputToParameterSpec": {"arg": "TensorArgument", "parameter_name": "str"},
    "InputToBufferSpec": {"arg": "TensorArgument", "buffer_name": "str", "persistent": "bool"},
    "InputToTensorConstantSpec": {"arg": "TensorArgument", "tensor_constant_name": "str"},
    "UserOutputSpec": {"arg": "Argument"},
    "BufferMutationSpec": {"arg": "TensorArgument", "buffer_name": "str"},
    "ParameterMutationSpec": {"arg": "TensorArgument", "parameter_name": "str"},
    "UserInputMutationSpec": {"arg": "TensorArgument", "user_input_name": "str"},
    "PayloadConfig": {"config": "map:PayloadMeta"},
    "PayloadMeta": {"path_name": "str", "is_param": "bool", "use_pickle": "bool", "tensor_meta": "opt:TensorMeta"},
}

UNIONS: dict[str, dict[str, str]] = {
    "Argument": {
        "as_none": "bool",
        "as_tensor": "TensorArgument",
        "as_tensors": "list:TensorArgument",
        "as_int": "int",
        "as_ints": "list:int",
        "as_float": "float",
        "as_floats": "list:float",
        "as_string": "str",
        "as_strings": "list:str",
        "as_sym_int": "SymIntArgument",
        "as_sym_ints": "list:SymIntArgument",
        "as_scalar_type": "int",
        "as_memory_format": "int",
        "as_layout": "int",
        "as_device": "Device",
        "as_bool": "bool",
        "as_bools": "list:bool",
        "as_sym_bool": "SymBoolArgument",
        "as_sym_bools": "list:SymBoolArgument",
        "as_graph": "GraphArgument",
        "as_optional_tensors": "list:OptionalTensorArgument",
        "as_sym_float": "SymFloatArgument",
        "as_sym_floats": "list:SymFloatArgument",
        "as_optional_tensor": "OptionalTensorArgument",
        "as_complex": "ComplexValue",
    },
    "OptionalTensorArgument": {"as_tensor": "TensorArgument", "as_none": "bool"},
    "SymIntArgument": {"as_name": "str", "as_int": "int"},
    "SymFloatArgument": {"as_name": "str", "as_float": "float"},
    "SymBoolArgument": {"as_name": "str", "as_bool": "bool"},
    "SymInt": {"as_expr": "SymExpr", "as_int": "int"},
    "SymFloat": {"as_expr": "SymExpr", "as_float": "float"},
    "SymBool": {"as_expr": "SymExpr", "as_bool": "bool"},
    "SymExprHint": {"as_int": "int", "as_bool": "bool", "as_float": "float"},
    "InputSpec": {
        "user_input": "UserInputSpec",
        "parameter": "InputToParameterSpec",
        "buffer": "InputToBufferSpec",
        "tensor_constant": "InputToTensorConstantSpec",
        "constant_input": "InputToConstantInputSpec",
    },
    "OutputSpec": {
        "user_output": "UserOutputSpec",
        "buffer_mutation": "BufferMutationSpec",
        "user_input_mutation": "UserInputMutationSpec",
        "parameter_mutation": "ParameterMutationSpec",
    },
    "ConstantValue": {"as_none": "bool", "as_int": "int", "as_float": "float", "as_string": "str", "as_bool": "bool"},
    "Never": {},
}

_REQUIRED = {name: frozenset(f for f in fields if not f.endswith("=")) for name, fields in RECORDS.items()}
_FIELDS = {name: {f.rstrip("="): type_ for f, type_ in fields.items()} for name, fields in RECORDS.items()}
_SCALARS: dict[str, tuple[type, ...]] = {"int": (int,), "bool": (bool,), "float": (int, float), "str": (str,)}
_FLOAT_WORDS = {"Infinity", "-Infinity", "NaN"}  # torch writes these floats as JSON strings
MAX_DEPTH = 48


def check_version(document: Any) -> None:
    """Before the schema itself: a newer document should be called newer, not malformed."""
    version = document.get("schema_version") if isinstance(document, dict) else None
    major, minor = (version.get("major"), version.get("minor")) if isinstance(version, dict) else (None, None)
    if major != SCHEMA_MAJOR or type(minor) is not int or not 0 <= minor <= SCHEMA_MINOR_MAX:
        found = f"schema {major}.{minor}, this Headway reads {SCHEMA_MAJOR}.{SCHEMA_MINOR_MAX}"
        raise Refusal("schema.version", found).inside("schema_version")


def check(value: Any, type_: str, *, depth: int = 0) -> None:
    """Raise Refusal ``schema.*`` unless ``value`` is exactly a ``type_``."""
    if depth > MAX_DEPTH:
        raise Refusal("schema.type", "nested too deeply")
    kind, _, inner = type_.partition(":")
    if kind in _SCALARS:
        _check_scalar(value, kind)
    elif kind == "opt":
        if value is not None:
            check(value, inner, depth=depth)
    elif kind == "list":
        if not isinstance(value, list):
            raise Refusal("schema.type", f"a list is needed, not {type(value).__name__}")
        for i, item in enumerate(value):
            _step(item, inner, depth, i)
    elif kind == "map":
        if not isinstance(value, dict):
            raise Refusal("schema.type", f"an object is needed, not {type(value).__name__}")
        for key, item in value.items():
            _check_scalar(key, "str")
            _step(item, inner, depth, key)
    else:
        _check_fields(value, kind, depth)


def _check_fields(value: Any, name: str, depth: int) -> None:
    if not isinstance(value, dict):
        raise Refusal("schema.type", f"an object ({name}) is needed, not {type(value).__name__}")
    fields = _FIELDS.get(name) or UNIONS[name]
    for key in value:
        if key not in fields:
            raise Refusal("schema.unknown", f"{name} has no field {key!r}")
    if name in UNIONS:
        if len(value) != 1:
            raise Refusal("schema.type", f"{name} has exactly one member, here {sorted(value)[:4]}")
    elif missing := _REQUIRED[name] - value.keys():
        raise Refusal("schema.missing", f"{name} needs {sorted(missing)}")
    for key, item in value.items():
        _step(item, fields[key], depth, key)


def _step(value: Any, type_: str, depth: int, step: str | int) -> None:
    try:
        check(value, type_, depth=depth + 1)
    except Refusal as r:
        raise r.inside(step) from None


def _check_scalar(value: Any, kind: str) -> None:
    if type(value) in _SCALARS[kind] and (kind != "str" or len(value) <= MAX_STRING):
        return
    if kind == "float" and isinstance(value, str) and value in _FLOAT_WORDS:
        return
    raise Refusal(
        "schema.type",
        f"{kind} is needed, not {type(value).__name__}" if kind != "str" else "a shorter string is needed",
    )
