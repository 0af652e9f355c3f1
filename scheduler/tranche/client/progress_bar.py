"""Progress bar of one job, for terminals and notebooks."""

from datetime import UTC, datetime
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from tranche.kube.api.resources import TrainingJob
from tranche.web.job_views import phase_of


class JobBar:
    """Progress bar with the planned completion of a job."""

    def __init__(self, name: str, *, shown: bool | None = None) -> None:
        """Create a progress bar without drawing it.

        Args:
            name: Name of the job.
            shown: Whether to draw; None: only on a terminal or in a notebook.
        """
        console = Console(stderr=True)
        notebook = Console().is_jupyter
        is_shown = (console.is_terminal or notebook) if shown is None else shown
        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
        state_column = TextColumn("{task.fields[state]}", markup=False)
        self._progress = Progress(
            *columns, state_column, console=Console() if notebook else console, disable=not is_shown
        )
        self._task = self._progress.add_task(name, total=1.0, state="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._progress.stop()

    def show(self, job: TrainingJob) -> None:
        """Draw the current state of the job."""
        self._progress.update(self._task, completed=done_share(job), state=state_of(job, datetime.now(UTC)))


def done_share(job: TrainingJob) -> float:
    """Return the trained share of the job, from 0 to 1."""
    spec, progress = job.spec, job.status.progress
    if job.status.phase == "Succeeded":
        return 1.0
    if progress is None:
        return 0.0
    data = spec.data
    total = data.chunks * data.epochs * data.batches_per_chunk if data else spec.workers.max_replicas
    return min(1.0, progress.batches / total)


def state_of(job: TrainingJob, now: datetime) -> str:
    """Return the phase and planned completion (planned start while it waits), such as ``Running, done 14:20:00Z``.

    Args:
        job: The job.
        now: Current time, with a time zone: a time of another day has its date.
    """
    phase, plan = phase_of(job), job.status.plan
    if phase == "Waiting" and plan is not None and plan.estimated_start is not None:
        return f"Waiting, starts {_moment(plan.estimated_start, now)}"
    if phase in ("Starting", "Running") and plan is not None and plan.estimated_completion is not None:
        return f"{phase}, done {_moment(plan.estimated_completion, now)}"
    return phase


def _moment(at: datetime, now: datetime) -> str:
    day = "" if at.astimezone(UTC).date() == now.astimezone(UTC).date() else "%Y-%m-%d "
    return at.astimezone(UTC).strftime(f"{day}%H:%M:%SZ")
