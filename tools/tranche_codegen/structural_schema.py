"""Conversion of a pydantic JSON schema to the structural schema of a CustomResourceDefinition.

Differences: no ``$ref``, no ``anyOf`` with null, bounds in the OpenAPI 3.0 form, a format for every number, and no
empty defaults (null, empty object).
"""

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

from pydantic import BaseModel

Schema = dict[str, Any]
_FORMATS = {"integer": "int64", "number": "double"}
RULES_INSIDE = "x-tranche-rules-inside"
"""Key of a field's CEL rules for fields of the schema that replaces it, by path."""
_EMPTY: tuple[Any, ...] = (None, "", [], {})


def structural_schema(model: type[BaseModel], embedded: Mapping[str, Schema]) -> Schema:
    """Build the structural schema of a model.

    Args:
        model: Model that the schema describes; fields are named by alias.
        embedded: Schemas that replace fields marked with the key, such as ``x-tranche-template``.
    """
    schema = model.model_json_schema()
    definitions = schema.pop("$defs", {})
    return _convert(schema, definitions, embedded)


def map_schemas(schema: Schema, convert: Callable[[Schema], Schema]) -> Schema:
    """Return a copy of the schema with converted direct children (properties, items, map values, alternatives)."""
    result = dict(schema)
    if "properties" in schema:
        result["properties"] = {name: convert(child) for name, child in schema["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            result[key] = convert(schema[key])
    return result


def _convert(schema: Schema, definitions: Mapping[str, Schema], embedded: Mapping[str, Schema]) -> Schema:
    schema = _defaults(_bounds(_flatten(schema, definitions)))
    schema.pop("title", None)
    inside: Mapping[str, Any] = schema.pop(RULES_INSIDE, {})
    for marker, replacement in embedded.items():
        if schema.pop(marker, False):
            schema.pop("additionalProperties", None)
            return {**_with_rules(replacement, inside), **schema}
    if schema.get("x-kubernetes-int-or-string"):
        schema.pop("anyOf", None)
    elif schema.get("type") in _FORMATS:
        schema["format"] = _FORMATS[schema["type"]]
    return map_schemas(schema, lambda child: _convert(child, definitions, embedded))


def _with_rules(schema: Schema, inside: Mapping[str, Any]) -> Schema:
    """Return a copy of the schema with CEL rules at fields inside, by path such as ``spec.nodeName``.

    A list in the path stands for each of its items.
    """
    result = deepcopy(schema)
    for path, rules in inside.items():
        field = result
        for name in path.split("."):
            field = field.get("items", field)["properties"][name]
        field["x-kubernetes-validations"] = rules
    return result


def _flatten(schema: Schema, definitions: Mapping[str, Schema]) -> Schema:
    """Replace a reference, or an alternative with null, by its target; keys beside it take precedence."""
    schema = dict(schema)
    while True:
        if "$ref" in schema:
            inner = definitions[schema.pop("$ref").rpartition("/")[2]]
        elif {"type": "null"} in schema.get("anyOf", []):
            alternatives = [choice for choice in schema.pop("anyOf") if choice != {"type": "null"}]
            inner = alternatives[0] if len(alternatives) == 1 else {"anyOf": alternatives}
        else:
            return schema
        schema = {**inner, **schema}


def _bounds(schema: Schema) -> Schema:
    """Convert exclusive bounds: numbers in JSON Schema, flags beside the bound in OpenAPI 3.0."""
    for exclusive, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if exclusive in schema:
            schema[bound] = schema[exclusive]
            schema[exclusive] = True
    return schema


def _defaults(schema: Schema) -> Schema:
    """Remove null fields from default objects, and empty defaults."""
    default = schema.pop("default", None)
    if isinstance(default, dict):
        default = {key: value for key, value in default.items() if value is not None}
    return schema if default in _EMPTY else {**schema, "default": default}
