from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field

from tranche.kube.api.fields import Quantity, Resource, rules
from tranche_codegen.structural_schema import RULES_INSIDE, Schema, structural_schema

Free = Annotated[dict[str, Any], Field(json_schema_extra=rules(("self.a", "b"), **{"x-tranche-template": True}))]
EMBEDDED: Schema = {"type": "object", "properties": {"title": {"type": "string", "default": ""}}}


class Inner(Resource):
    """An inner object."""

    kind: Literal["A", "B"] = "A"
    size: Quantity | None = None


class Outer(Resource):
    """An outer object."""

    long_name: int = Field(default=3, ge=1)
    """Description of the field."""
    share: float = Field(default=1.0, gt=0, le=2)
    at: datetime | None = None
    inner: Inner | None = None
    always: Inner = Inner()
    inners: list[Inner] = Field(default=[], max_length=4)
    labels: dict[str, str] = {}  # noqa: RUF012
    free: Free | None = None
    text: str = ""


def properties() -> dict[str, Any]:
    schema = structural_schema(Outer, {"x-tranche-template": EMBEDDED})
    assert schema["description"] == "An outer object."
    assert set(schema) == {"type", "description", "properties"}
    result: dict[str, Any] = schema["properties"]
    return result


def test_schema_has_camel_case_names_formats_bounds_and_defaults() -> None:
    assert properties()["longName"] == {
        "type": "integer",
        "format": "int64",
        "minimum": 1,
        "default": 3,
        "description": "Description of the field.",
    }


def test_an_exclusive_bound_is_a_flag_beside_the_bound() -> None:
    assert properties()["share"] == {
        "type": "number",
        "format": "double",
        "minimum": 0,
        "exclusiveMinimum": True,
        "maximum": 2,
        "default": 1.0,
    }


def test_optional_is_absent_and_never_null() -> None:
    assert properties()["at"] == {"type": "string", "format": "date-time"}
    assert properties()["inner"]["type"] == "object"


def test_references_are_inlined_and_quantities_are_int_or_string() -> None:
    inner = properties()["inners"]["items"]
    assert inner["description"] == "An inner object."
    assert inner["properties"]["kind"] == {"type": "string", "enum": ["A", "B"], "default": "A"}
    size = inner["properties"]["size"]
    assert size["x-kubernetes-int-or-string"] is True
    assert not {"anyOf", "type"} & set(size)


def test_schema_omits_empty_defaults_and_unset_default_fields() -> None:
    found = properties()
    assert found["always"]["default"] == {"kind": "A"}
    assert not any("default" in found[name] for name in ("inner", "inners", "labels", "text", "at"))
    assert found["labels"] == {"type": "object", "additionalProperties": {"type": "string"}}
    assert found["inners"]["maxItems"] == 4


def test_a_rule_for_a_field_inside_is_put_there() -> None:
    class Holder(Resource):
        free: Annotated[
            dict[str, Any],
            Field(json_schema_extra={"x-tranche-template": True, RULES_INSIDE: {"title": [{"rule": "false"}]}}),
        ]

    found = structural_schema(Holder, {"x-tranche-template": EMBEDDED})["properties"]["free"]
    title = {"type": "string", "default": "", "x-kubernetes-validations": [{"rule": "false"}]}
    assert found == {"type": "object", "properties": {"title": title}}
    assert "x-kubernetes-validations" not in EMBEDDED["properties"]["title"]


def test_a_rule_behind_a_list_is_put_at_its_items() -> None:
    class Holder(Resource):
        free: Annotated[
            dict[str, Any],
            Field(json_schema_extra={"x-tranche-template": True, RULES_INSIDE: {"rows.title": [{"rule": "false"}]}}),
        ]

    rows = {"type": "array", "items": EMBEDDED}
    listed = {"type": "object", "properties": {"rows": rows}}
    found = structural_schema(Holder, {"x-tranche-template": listed})["properties"]["free"]
    title = found["properties"]["rows"]["items"]["properties"]["title"]
    assert title == {"type": "string", "default": "", "x-kubernetes-validations": [{"rule": "false"}]}


def test_embedded_schema_is_kept_and_gets_rules_of_the_field() -> None:
    free = properties()["free"]
    assert free == {**EMBEDDED, **rules(("self.a", "b"))}
