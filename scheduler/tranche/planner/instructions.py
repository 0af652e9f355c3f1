"""Instructions of the planner to its host; every instruction carries the event that caused it."""

from typing import NamedTuple

from tranche.model import PlannedServer, Window
from tranche.planner.events import Event


class OpenWindow(NamedTuple):
    """Start a worker pod."""

    job: str
    window: Window
    cause: Event


class ExtendWindow(NamedTuple):
    """Continue a worker pod with these chunks; its previous chunks are done."""

    job: str
    window: Window
    cause: Event


class CloseWindow(NamedTuple):
    """Stop a worker pod; its end comes back as `WorkerEnded`."""

    job: str
    window: Window
    cause: Event


class PlaceParameterServer(NamedTuple):
    """Start a parameter server pod, or the chief of a gang."""

    job: str
    server: PlannedServer
    cause: Event


class CloseParameterServer(NamedTuple):
    """Stop a parameter server or chief, which saves; its end comes back as `ParameterServerEnded` or `ChiefEnded`."""

    job: str
    server: PlannedServer
    cause: Event


class StageData(NamedTuple):
    """Copy data of chunks to a site, in this order; if uploads are reported, their ends come back as `ChunkStaged`.

    If the job is `staged`, one pod copies them, and its end comes back as `StagingEnded`.
    """

    job: str
    chunks: tuple[int, ...]
    site: str
    cause: Event


class PublishPlan(NamedTuple):
    """Write the job's plan and ledger to its status, because one of them changed."""

    job: str
    cause: Event


Instruction = (
    OpenWindow | ExtendWindow | CloseWindow | PlaceParameterServer | CloseParameterServer | StageData | PublishPlan
)
