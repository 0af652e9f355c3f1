"""Reference of the policies: what each does, its source and its options, from the registry."""

import ast
import inspect
import sys
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from tranche.policies import POLICIES
from tranche.policies.base import Policy
from tranche_codegen.reference.markdown_table import cell, table

_HEAD = """\
# Policies

Generated from the registry by `make generate`; do not edit. `[P]` marks what is printed in the source, `[I]` what is
ours. Options are written after the name: `chunk:aging=0:copies=2`. How to choose one:
[choose-a-policy.md](../how-to/choose-a-policy.md).
"""


def policies_page() -> str:
    """Return the text of docs/reference/policies.md."""
    names = sorted(POLICIES)
    rows = (
        (
            f"[`{name}`](#{name})",
            "yes" if POLICIES[name].traits.preemptive else "no",
            "live, simulated" if POLICIES[name].traits.recoverable else "simulated",
            POLICIES[name].source,
        )
        for name in names
    )
    overview = table(("policy", "preempts", "used", "source"), rows)
    return "\n".join([_HEAD, overview, *(_section(name, POLICIES[name]) for name in names)])


def _section(name: str, policy: Policy) -> str:
    said = inspect.getdoc(sys.modules[type(policy).__module__]) or ""
    first = (inspect.getdoc(type(policy)) or "").partition("\n")[0]
    text = f"## {name}\n\n{first}\n\n{said.replace('``', '`')}\n"
    if options := list(_options(policy)):
        text += "\n" + table(("option", "default", "meaning"), options)
    return text


def _options(policy: Any) -> Iterator[tuple[str, str, str]]:
    meanings: dict[str, str] = {}
    for kind in reversed(type(policy).__mro__):
        if is_dataclass(kind):
            meanings |= _field_texts(kind)
    for field in fields(policy):
        assert field.default is not MISSING, f"{policy.name}: {field.name} has no default"
        default = field.default
        text = "/".join(f"{one:g}" for one in default) if isinstance(default, tuple) else default
        shown = f"`{text}`" if isinstance(text, str) else cell(text)
        yield f"`{field.name}`", shown, meanings.get(field.name, "")


def _field_texts(kind: type) -> Iterator[tuple[str, str]]:
    """Yield the name and the docstring of each field."""
    (body,) = [one for one in ast.parse(inspect.getsource(kind)).body if isinstance(one, ast.ClassDef)]
    for field, below in zip(body.body, body.body[1:], strict=False):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(said))):
                yield name, " ".join(said.split())
