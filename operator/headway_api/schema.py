"""Pydantic's JSON schema, made into the structural schema that a CustomResourceDefinition takes.

References are put in place of their names, `null` alternatives go (absent is absent), an integer or a string becomes
`x-kubernetes-int-or-string`, and maps with checked keys become plain maps (a rule checks the keys, see `rules`).
Every field must have a description; a field without one is an error here, not a gap in `kubectl explain`.
"""

from typing import Any

from pydantic import BaseModel

Schema = dict[str, Any]

_DROPPED = ("title", "$defs", "propertyNames", "patternProperties")


def structural(model: type[BaseModel]) -> Schema:
    """The structural schema of a model, by its wire names.

    Raises ValueError naming the field that has no description or a form that structural schemas cannot say.
    """
    schema = model.model_json_schema(by_alias=True)
    return _render(schema, schema.get("$defs", {}), model.__name__)


def _render(schema: Schema, definitions: dict[str, Schema], path: str) -> Schema:
    schema = _flatten(schema, definitions, path)
    out = {key: value for key, value in schema.items() if key not in _DROPPED}
    if out.get("default", ...) is None:
        del out["default"]
    if "properties" in out:
        out.pop("additionalProperties", None)
        out["properties"] = {
            name: _described(_render(field, definitions, f"{path}.{name}"), f"{path}.{name}")
            for name, field in out["properties"].items()
        }
    elif out.get("type") == "object":
        out |= _map_values(schema, definitions, path)
        if out.get("x-kubernetes-preserve-unknown-fields"):
            del out["additionalProperties"]
    if "items" in out:
        out["items"] = _render(out["items"], definitions, f"{path}[*]")
        out.setdefault("x-kubernetes-list-type", "atomic")
    return out


def _flatten(schema: Schema, definitions: dict[str, Schema], path: str) -> Schema:
    """Resolve a reference or an optional type: what the field itself says wins over what its type says."""
    own = dict(schema)
    if reference := own.pop("$ref", None):
        return _flatten({**definitions[reference.rpartition("/")[2]], **own}, definitions, path)
    if (choices := own.pop("anyOf", None)) is None:
        return own
    choices = [_flatten(choice, definitions, path) for choice in choices if choice != {"type": "null"}]
    if len(choices) == 1:
        return _flatten({**choices[0], **own}, definitions, path)
    if sorted(choice.get("type") for choice in choices) == ["integer", "string"]:
        text = next(choice for choice in choices if choice["type"] == "string")
        return {**{k: v for k, v in text.items() if k != "type"}, **own, "x-kubernetes-int-or-string": True}
    raise ValueError(f"{path}: a structural schema cannot say {choices}; choose one type")


def _map_values(schema: Schema, definitions: dict[str, Schema], path: str) -> Schema:
    values = [*schema.get("patternProperties", {}).values()] or [schema.get("additionalProperties", True)]
    value = values[0]
    return {"additionalProperties": value if isinstance(value, bool) else _render(value, definitions, f"{path}[*]")}


def _described(schema: Schema, path: str) -> Schema:
    if not schema.get("description"):
        raise ValueError(f"{path}: has no description; give its Field a description=")
    if "default" in schema:  # `kubectl explain` shows no defaults of its own accord
        schema["description"] += f" Default: {schema['default']}."
    return schema
