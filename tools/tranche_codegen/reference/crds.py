"""Reference of a custom resource: every field of its definition, with type, default and meaning."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from tranche_codegen.reference.markdown_table import cell, table

Schema = Mapping[str, Any]
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
EMBEDDED = {"template": "pod template", "volume": "volume source"}
"""Fields whose content Kubernetes defines, so that it is not listed again."""
_HEAD = """\
# {kind}

Generated from the custom resource definition by `make generate`; do not edit. `{plural}.{group}`, version `{version}`,
{scope}.
`kubectl explain {singular}.spec` shows the same for the definition that is installed. A field without a default may be
left out unless it is required.
"""


def definition_page(file: Path) -> str:
    """Return the text of the page of one definition."""
    spec = yaml.load(file.read_text(encoding="utf-8"), Loader=_LOADER)["spec"]  # noqa: S506 - a safe loader
    (version,) = spec["versions"]
    root = version["schema"]["openAPIV3Schema"]
    head = _HEAD.format(
        kind=spec["names"]["kind"],
        plural=spec["names"]["plural"],
        singular=spec["names"]["singular"],
        group=spec["group"],
        version=version["name"],
        scope="one for the cluster" if spec["scope"] == "Cluster" else "in a namespace",
    )
    parts = [head, root["description"] + "\n"]
    for name in ("spec", "status"):
        part = root["properties"][name]
        parts += [
            f"## {name}\n",
            part["description"] + "\n",
            table(("field", "type", "default", "meaning"), _rows(part)),
        ]
        if rules := list(_rules(name, part)):
            parts += [f"### What is refused in {name}\n", table(("field", "message of the API server"), rules)]
    parts += ["## Columns of kubectl get\n", _columns(version)]
    return "\n".join(parts)


def _rows(schema: Schema, prefix: str = "") -> Iterator[tuple[str, ...]]:
    required = schema.get("required", ())
    for name, field in schema.get("properties", {}).items():
        path = f"{prefix}{name}"
        default = "required" if name in required else _default(field["default"]) if "default" in field else ""
        inside = field.get("items", field)
        meaning = field.get("description") or inside.get("description", "")
        yield f"`{path}`", _type(name, field), default, meaning
        if name not in EMBEDDED:
            yield from _rows(inside, f"{path}[]." if "items" in field else f"{path}.")


def _default(value: object) -> str:
    return cell(int(value) if isinstance(value, float) and value.is_integer() else value)


def _type(name: str, field: Schema) -> str:
    if name in EMBEDDED and "properties" in field:
        return EMBEDDED[name]
    if "enum" in field:
        return " or ".join(f"`{value}`" for value in field["enum"])
    if field.get("x-kubernetes-int-or-string"):
        return "quantity"
    if "items" in field:
        return f"list of {_type('', field['items'])}"
    if isinstance(values := field.get("additionalProperties"), Mapping):
        return f"map to {_type('', values)}"
    word = field.get("format") if field.get("format") == "date-time" else field.get("type", "any")
    return f"{word}{_range(field)}"


def _range(field: Schema) -> str:
    low, high = (None if bound is None else f"{bound:.16g}" for bound in (field.get("minimum"), field.get("maximum")))
    above = ">" if field.get("exclusiveMinimum") else "≥"
    if low is not None and high is not None:
        return f", {above} {low} and ≤ {high}"
    return f", {above} {low}" if low is not None else f", ≤ {high}" if high is not None else ""


def _rules(path: str, schema: Schema) -> Iterator[tuple[str, str]]:
    for rule in schema.get("x-kubernetes-validations", ()):
        yield f"`{path}`", rule["message"]
    for name, field in schema.get("properties", {}).items():
        below = f"{path}.{name}"
        if name in EMBEDDED:  # a message names the fields inside that it concerns
            messages = dict.fromkeys(message for _, message in _rules(below, field))
            yield from ((f"`{below}`", message) for message in messages)
            continue
        yield from _rules(below, field)
        yield from _rules(f"{below}[]", field.get("items", {}))


def _columns(version: Schema) -> str:
    rows = (
        (
            column["name"],
            f"`{column['jsonPath']}`",
            "with `-o wide`" if column.get("priority") else "",
            column.get("description", ""),
        )
        for column in version["additionalPrinterColumns"]
    )
    return table(("column", "field", "", "meaning"), rows)
