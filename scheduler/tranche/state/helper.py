"""State of the helpers of a job: its parameter servers and the chief of a gang."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tranche.model import Job, PlannedServer, PodShape, Resources, WindowState


class MissingHelper(NamedTuple):
    """A parameter server or chief that has no place yet."""

    number: int
    is_chief: bool
    shape: PodShape


def helpers_of(job: Job) -> list[MissingHelper]:
    """Return the chief and the parameter servers that a job needs, the chief first."""
    helpers = [MissingHelper(0, True, job.chief)] if job.chief is not None else []
    if job.server is not None:
        helpers += [MissingHelper(index, False, job.server) for index in range(job.servers)]
    return helpers


@dataclass(slots=True, eq=False)
class Server:
    """A parameter server, or the chief of a gang, that has been placed."""

    planned: PlannedServer
    requests: Resources
    since: float = 0.0
    """When it was placed, or restored with its place, in seconds on the planner's clock."""
    placed: bool = False
    """Whether kube-scheduler has placed its pod."""
    started: bool = False
    """Whether its container has started."""
    never_scheduled: bool = False
    """Whether its pod was never scheduled, or never started, so that it holds no state that could be lost."""
    adopted: bool = False
    """Whether an earlier planner placed it, so that its container may have started unnoticed."""

    @property
    def closing(self) -> bool:
        """Whether the pod is to stop."""
        return self.planned.state is WindowState.CLOSING

    @property
    def title(self) -> str:
        """Name in messages about its job."""
        return "its chief" if self.planned.is_chief else f"parameter server {self.planned.index}"

    def shape_in(self, job: Job) -> PodShape | None:
        """Return what its job requires for pods of its role."""
        return job.chief if self.planned.is_chief else job.server
