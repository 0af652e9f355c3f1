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
    """A TrainingJob without the values of its specification that this release does not know. It cannot be planned."""

    problem: str
    """The first of these values, and what is wrong with it."""


def decode_job(raw: bytes) -> TrainingJob:
    """Decode a TrainingJob from JSON; an `UnreadableJob` if only optional fields of its specification are unknown.

    Raises:
        ValueError: anything else cannot be decoded.
    """
    try:
        return TrainingJob.model_validate_json(raw)
    except ValidationError as error:
        known = msgspec.json.decode(raw)
        for one in error.errors(include_url=False, include_input=False):
            if one["loc"][0] != "spec" or not _remove(known, one["loc"]):
                raise
        return UnreadableJob.model_validate({**known, "problem": first_problem(error)})


def _remove(known: Any, path: Sequence[int | str]) -> bool:
    """Remove the field at a path; return whether there is one."""
    *parents, field = path
    for name in parents:
        known = known.get(name) if isinstance(known, dict) else None
    return isinstance(known, dict) and known.pop(field, None) is not None
