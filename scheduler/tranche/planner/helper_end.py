"""Events for the ends of helpers: of parameter servers, and of the chief of a gang."""

from tranche.model import PlannedServer
from tranche.planner.events import ChiefEnded, Outcome, ParameterServerEnded
from tranche.state.job import JobState

HelperEnd = ParameterServerEnded | ChiefEnded


def helper_end(job: str, planned: PlannedServer, outcome: Outcome = "Lost", exit_code: int | None = None) -> HelperEnd:
    """Make the event for the end of a parameter server or chief."""
    if planned.is_chief:
        return ChiefEnded(job, planned.attempt, outcome, exit_code)
    return ParameterServerEnded(job, planned.index, planned.attempt, outcome, exit_code)


def expected_chief_end(key: str, state: JobState) -> ChiefEnded | None:
    """Make the expected end of a chief whose workers are all done; None if its end is not expected."""
    chief = state.chief
    if chief is None or chief.closing or len(state.done) < state.job.chunks:
        return None
    return ChiefEnded(key, chief.planned.attempt, "Succeeded", 0)
