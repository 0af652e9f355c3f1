"""Reference of the chart's values, from the comments in values.yaml and from its schema, and the schema's policies."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml

from tranche.policies import Policy
from tranche_codegen.reference.markdown_table import cell, table

_HEAD = """\
# Values of the chart

Generated from `helm/tranche/values.yaml` and `values.schema.json` by `make generate`; do not edit. A value that is not
listed is refused by name. Where to begin: [installing.md](../how-to/installing.md#values).
"""


def values_page(chart: Path) -> str:
    """Return the text of docs/reference/values.md.

    Raises:
        KeyError: A value has no comment, or is not in the schema.
    """
    text = (chart / "values.yaml").read_text(encoding="utf-8")
    schema = json.loads((chart / "values.schema.json").read_text(encoding="utf-8"))
    meanings = dict(comments(text))
    rows = []
    for path, value in _leaves(yaml.safe_load(text), meanings):
        rows.append((f"`{path}`", _type(_find(schema, path), schema), cell(value), meanings[path]))
    return "\n".join([_HEAD, table(("value", "type", "default", "meaning"), rows)])


def schema_text(chart: Path, policies: Mapping[str, Policy]) -> str:
    """Return the text of values.schema.json, in which the value `policy` is a policy with options that it has.

    Raises:
        ValueError: The schema has no pattern of the value.
    """
    text = (chart / "values.schema.json").read_text(encoding="utf-8")
    line = re.compile(r'("policy": \{"type": "string", "pattern": )"[^"]*"')
    if not line.search(text):
        raise ValueError("values.schema.json has no pattern of the value policy")
    pattern = f"^({'|'.join(name + _options_pattern(policy) for name, policy in sorted(policies.items()))})$"
    return line.sub(lambda match: match[1] + json.dumps(pattern), text)


def _options_pattern(policy: Policy) -> str:
    """Return a pattern of the options of a policy; the scheduler checks the ranges of their values."""
    defaults = {field.name: getattr(policy, field.name) for field in fields(policy)}  # type: ignore[arg-type]
    texts = [name for name, default in defaults.items() if isinstance(default, str)]
    numbers = [name for name in defaults if name not in texts]
    parts = [f"({'|'.join(numbers)})=(inf|[0-9][0-9.e/+-]*)"] if numbers else []
    parts += [f"({'|'.join(texts)})=[^:\\s]+"] if texts else []
    return f"(:({'|'.join(parts)}))*" if parts else ""


def comments(text: str) -> Iterator[tuple[str, str]]:
    """Yield path and meaning of every value that has a comment ``# --``."""
    parents: list[tuple[int, str]] = []
    meaning = ""
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip())
        if match := re.match(r"\s*# -- (.*)", line):
            meaning = match[1]
        elif match := re.match(r"\s*([\w.-]+):", line):
            parents = [*(entry for entry in parents if entry[0] < indent), (indent, match[1])]
            if meaning:
                yield ".".join(name for _, name in parents), meaning
            meaning = ""


def _leaves(values: Mapping[str, Any], meanings: Mapping[str, str], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        path = f"{prefix}{name}"
        if path not in meanings and isinstance(value, dict):
            yield from _leaves(value, meanings, f"{path}.")
        else:
            yield path, value


def _resolved(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    reference = schema.get("$ref")
    return root["definitions"][reference.rpartition("/")[2]] if reference else schema


def _find(root: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    schema: Mapping[str, Any] = root
    for name in path.split("."):
        schema = _resolved(schema["properties"][name], root)
    return schema


def _type(schema: Mapping[str, Any], root: Mapping[str, Any]) -> str:
    schema = _resolved(schema, root)
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    if ways := schema.get("oneOf") or schema.get("anyOf"):
        return " or ".join(_type(way, root) for way in ways)
    words = schema.get("type", "any")
    if words == "array":
        return f"list of {_type(schema.get('items', {}), root)}"
    return " or ".join(words) if isinstance(words, list) else str(words)
