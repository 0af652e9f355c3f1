"""Decoding of TrainingJobs, also of those with values that only a newer release knows.

The custom resource definitions may be newer than the programs, and after a rollback jobs may have values of the release
before it. Such a job exists: its condition says why it is not planned, and no response to its workers says that it is
gone.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from pydantic import ValidationError

from tranche.kube.api.invalid_object import first_problem
from tranche.kube.api.resources import TrainingJob


class UnreadableJob(TrainingJob):
    """A TrainingJob without the values that this release does not know. It cannot be planned."""

    problem: str
    """The first of these values, and what is wrong with it."""


def decode_job(raw: bytes) -> TrainingJob:
    """Decode a TrainingJob from JSON; an `UnreadableJob` if only optional fields of its specification are unknown.

    Raises:
        ValueError: anything else cannot be decoded.
    """
    return _decoded(raw, "spec")


def decode_new_job(raw: bytes) -> TrainingJob:
    """Decode a TrainingJob of which no version is known; an `UnreadableJob` if fields of its status are unknown, too.

    Raises:
        ValueError: anything else cannot be decoded.
    """
    return _decoded(raw, "spec", "status")


def _decoded(raw: bytes, *parts: str) -> TrainingJob:
    try:
        return TrainingJob.model_validate_json(raw)
    except ValidationError as error:
        known = msgspec.json.decode(raw)
        for one in error.errors(include_url=False, include_input=False):
            part, *path = one["loc"]
            # A plan without one of its windows would be another plan: of the status, whole fields are left out.
            where = (part, *(path[:1] if part == "status" else path))
            if part not in parts or not (_remove(known, where) or part == "status"):
                raise
        return UnreadableJob.model_validate({**known, "problem": first_problem(error)})


def _remove(known: Any, path: Sequence[int | str]) -> bool:
    """Remove the field at a path; return whether there is one."""
    *parents, field = path
    for name in parents:
        known = known.get(name) if isinstance(known, dict) else None
    return isinstance(known, dict) and known.pop(field, None) is not None
