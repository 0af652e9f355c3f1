"""What the planner wants done; every instruction carries the event that caused it."""

from dataclasses import dataclass

from tranche.model import PlannedServer, Window
from tranche.planner.events import Event


@dataclass(frozen=True, slots=True)
class OpenWindow:
    """Start a worker pod."""

    job: str
    window: Window
    cause: Event


@dataclass(frozen=True, slots=True)
class RenewWindow:
    """A worker pod goes on with these chunks; those that it had are done."""

    job: str
    window: Window
    cause: Event


@dataclass(frozen=True, slots=True)
class CloseWindow:
    """Stop a worker pod; its end comes back as `WorkerEnded`."""

    job: str
    window: Window
    cause: Event


@dataclass(frozen=True, slots=True)
class PlaceParameterServer:
    """Start a parameter server pod, or the chief of a gang."""

    job: str
    server: PlannedServer
    cause: Event


@dataclass(frozen=True, slots=True)
class CloseParameterServer:
    """Stop such a pod, which saves; its end comes back as `ParameterServerLost` or `ChiefEnded`."""

    job: str
    server: PlannedServer
    cause: Event


@dataclass(frozen=True, slots=True)
class StageData:
    """Copy data of chunks to a site, in this order; if uploads are reported, their ends come back as `ChunkStaged`.

    Of a job that is `staged`, one pod brings them, whose end comes back as `StagingEnded`.
    """

    job: str
    chunks: tuple[int, ...]
    site: str
    cause: Event


@dataclass(frozen=True, slots=True)
class PublishPlan:
    """The job's plan or ledger changed: write them down."""

    job: str
    cause: Event


Instruction = (
    OpenWindow | RenewWindow | CloseWindow | PlaceParameterServer | CloseParameterServer | StageData | PublishPlan
)
