"""Reading of custom resources with values that only a newer release knows.

The custom resource definitions may be newer than the programs, and after a rollback objects may have values of the
release before it.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec
from pydantic import BaseModel, ValidationError

from tranche.kube.api.invalid_object import first_problem

Model = TypeVar("Model", bound=BaseModel)
Unreadable = TypeVar("Unreadable", bound=BaseModel)


def decode(raw: bytes, model: type[Model], unreadable: type[Unreadable], *parts: str) -> Model | Unreadable:
    """Decode an object from JSON; without its unknown values, as another class with `problem`, if it has any.

    Args:
        raw: The object.
        model: Class of objects that can be read.
        unreadable: Class of the others; `problem` is the first of these values, and what is wrong with it.
        parts: Fields of the object, such as ``spec``, in which optional fields may be unknown.

    Raises:
        ValueError: anything else cannot be decoded.
    """
    try:
        return model.model_validate_json(raw)
    except ValidationError as error:
        known = msgspec.json.decode(raw)
        for one in error.errors(include_url=False, include_input=False):
            part, *path = one["loc"]
            # A plan without one of its windows would be another plan: of the status, whole fields are left out.
            where = (part, *(path[:1] if part == "status" else path))
            if part not in parts or not (_remove(known, where) or part == "status"):
                raise
        return unreadable.model_validate({**known, "problem": first_problem(error)})


def _remove(known: Any, path: Sequence[int | str]) -> bool:
    """Remove the field at a path; return whether there is one."""
    *parents, field = path
    for name in parents:
        known = known.get(name) if isinstance(known, dict) else None
    return isinstance(known, dict) and known.pop(field, None) is not None
