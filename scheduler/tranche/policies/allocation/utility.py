"""Utility of a job for policies that maximize it: the one that it names, else one after its weight and size.

Source: ours [I]: a job that names none has γ1 = 50 · weight, γ3 = twice the shortest time in which it could be done,
and γ2 = 4/γ3.
"""

from tranche.model import Utility
from tranche.model.utility import UTILITY_OF_WEIGHT
from tranche.state.job import JobState


def utility_of(state: JobState) -> Utility:
    """Return the utility of completing the job."""
    if state.job.utility is not None:
        return state.job.utility
    target = max(2.0 * state.ideal_seconds, 1e-9)
    return Utility(UTILITY_OF_WEIGHT * state.job.weight, 4.0 / target, target)
