"""State of parameter servers and chiefs."""

from dataclasses import dataclass
from typing import NamedTuple

from tranche.model import Job, PlannedServer, PodShape, Resources, WindowState


class Missing(NamedTuple):
    """A parameter server or chief that has no place yet."""

    number: int
    is_chief: bool
    shape: PodShape


def helpers_of(job: Job) -> list[Missing]:
    """What a job needs beside its workers, the chief first."""
    wanted = [Missing(0, True, job.chief)] if job.chief is not None else []
    if job.server is not None:
        wanted += [Missing(index, False, job.server) for index in range(job.servers)]
    return wanted


@dataclass(slots=True, eq=False)
class Server:
    """A parameter server, or the chief of a gang, that has been placed."""

    planned: PlannedServer
    requests: Resources
    since: float = 0.0
    """When it was placed, or restored with its place, in seconds on the planner's clock."""
    homeless: bool = False
    """Whether its pod was never scheduled, so that it holds no state that could be lost."""

    @property
    def closing(self) -> bool:
        """Whether the pod is to stop."""
        return self.planned.state is WindowState.CLOSING
