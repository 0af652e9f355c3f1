"""Options of a policy with their defaults and meanings, from the fields of its class and their docstrings."""

import ast
import inspect
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any

from tranche.policies.base import Policy


@dataclass(frozen=True, slots=True)
class Option:
    """Option of a policy."""

    name: str
    default: str
    """Default value, as it is written in the name of a policy: ``chunk:aging=30``."""
    meaning: str


def options_of(policy: Policy) -> list[Option]:
    """Return the options of a policy, those of its base classes first."""
    meanings: dict[str, str] = {}
    for kind in reversed(type(policy).__mro__):
        if is_dataclass(kind):
            meanings |= _field_texts(kind)
    instance: Any = policy
    return [Option(option.name, _default(option.default), meanings.get(option.name, "")) for option in fields(instance)]


def _default(value: Any) -> str:
    assert value is not MISSING, "each option has a default"
    if isinstance(value, tuple):
        return "/".join(_default(number) for number in value)
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)


def _field_texts(kind: type) -> Iterator[tuple[str, str]]:
    """Yield the name and the docstring of each field."""
    (body,) = [node for node in ast.parse(inspect.getsource(kind)).body if isinstance(node, ast.ClassDef)]
    for field, below in zip(body.body, body.body[1:], strict=False):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                yield name, " ".join(text.split())
