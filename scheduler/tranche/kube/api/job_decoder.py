"""Decoding of TrainingJobs, also of those with values that only a newer release knows.

Such a job exists: its condition says why it is not planned, and no response to its workers says that it is gone.
"""

from tranche.kube.api.resources import TrainingJob
from tranche.kube.api.unknown_values import decode


class UnreadableJob(TrainingJob):
    """A TrainingJob without the values that this release does not know. It cannot be planned."""

    problem: str
    """The first of these values, and what is wrong with it."""


def decode_job(raw: bytes) -> TrainingJob:
    """Decode a TrainingJob from JSON; an `UnreadableJob` if only optional fields of its specification are unknown.

    Raises:
        ValueError: anything else cannot be decoded.
    """
    return decode(raw, TrainingJob, UnreadableJob, "spec")


def decode_new_job(raw: bytes) -> TrainingJob:
    """Decode a TrainingJob of which no version is known; an `UnreadableJob` if fields of its status are unknown, too.

    Raises:
        ValueError: anything else cannot be decoded.
    """
    return decode(raw, TrainingJob, UnreadableJob, "spec", "status")
