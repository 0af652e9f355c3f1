"""`Client`: what a user does with TrainingJobs from Python."""

from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self, TypeVar

from tranche.client.api_session import OVER, Session
from tranche.client.background_loop import LoopThread
from tranche.client.chunk_plan import ChunkPlan, chunk_plan
from tranche.client.errors import refusal
from tranche.client.job_history import History
from tranche.client.kube_context import present_namespace
from tranche.client.manifest import Manifest, read_manifest
from tranche.client.progress_bar import JobBar
from tranche.client.what_if import SYSTEM_NAMESPACE, WhatIf, what_if
from tranche.kube.api.resources import TrainingJob
from tranche.kube.client.client import ApiClient
from tranche.kube.client.errors import ApiError
from tranche.web import job_views
from tranche.web.job_views import JobDetail, JobSummary

T = TypeVar("T")


class Client:
    """A cluster with tranche on it, as its user sees it; every call waits for its answer.

    It asks the API server only, with the rights of the kubeconfig's user. To be closed, or used in a ``with`` block.

    Every method takes `namespace`; without it the one of the client is meant. Every method raises `ClusterError` when
    the API server cannot be reached or refuses, and `NoSuchJob` for a job that is not there.
    """

    def __init__(
        self, namespace: str | None = None, *, kubeconfig: str | None = None, context: str | None = None
    ) -> None:
        """Read the kubeconfig; the cluster is not asked yet.

        Args:
            namespace: Of jobs; default: that of the context.
            kubeconfig: File; default: ``$KUBECONFIG``, else the pod's service account, else ``~/.kube/config``.
            context: Of the kubeconfig; default: its current one.

        Raises:
            ClusterError: there are no usable credentials.
        """
        self.namespace = namespace or present_namespace(kubeconfig, context)
        self._loop = LoopThread()
        self._stack = AsyncExitStack()
        try:
            api = self._loop.call(self._stack.enter_async_context(ApiClient.connect(kubeconfig, context)))
        except ApiError as error:
            self._loop.stop()
            raise refusal("connect", error) from error
        self.session = Session(api)
        self._open = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; harmless when done already."""
        if self._open:
            self._open = False
            self._loop.call(self._stack.aclose())
            self._loop.stop()

    def submit(self, manifest: Manifest, namespace: str | None = None) -> JobDetail:
        """Create a TrainingJob.

        Args:
            manifest: An object, YAML text, or the path of a file.
            namespace: Where; default: the manifest's own, else the client's.

        Raises:
            ManifestError: it is not one TrainingJob, or the API server does not take it.
        """
        body = read_manifest(manifest)
        place = self.place_of(body, namespace)
        return job_views.detail(self.call(self.session.create(place, body)))

    def what_if(
        self, manifest: Manifest, namespace: str | None = None, *, system_namespace: str = SYSTEM_NAMESPACE
    ) -> WhatIf:
        """When a job would start and complete if it were submitted now; nothing is created.

        The planner of this process plans on paper what it reads of the cluster, so it takes the right to list jobs,
        sites, pods, nodes and quotas everywhere.

        Args:
            manifest: As for `submit`.
            namespace: As for `submit`.
            system_namespace: Of the scheduler, whose Lease says which policy it runs.

        Raises:
            ManifestError: it is not one TrainingJob, or the API server does not take it.
        """
        body = read_manifest(manifest)
        return self.call(what_if(self.session, self.place_of(body, namespace), body, system_namespace))

    def queue(
        self, namespace: str | None = None, *, all_namespaces: bool = False, over: bool = False
    ) -> list[JobSummary]:
        """Jobs that run, then those that wait, as they are planned to complete.

        Args:
            namespace: Of the jobs.
            all_namespaces: Of all namespaces instead.
            over: Also those that have ended, last.
        """
        jobs = self.call(self.session.jobs("" if all_namespaces else namespace or self.namespace))
        chosen = [job_views.summary(job) for job in jobs if over or job.status.phase not in OVER]
        return sorted(chosen, key=_turn)

    def plan(self, name: str, namespace: str | None = None) -> JobDetail:
        """Everything that is planned for a job, and how far it is."""
        return job_views.detail(self._job(name, namespace))

    def chunks(self, name: str, namespace: str | None = None, *, system_namespace: str = SYSTEM_NAMESPACE) -> ChunkPlan:
        """Where and when each chunk of a job trains, by the present plan.

        The planner of this process plans on paper what it reads of the cluster, so it takes the right to list jobs,
        sites, pods, nodes and quotas everywhere.

        Args:
            name: Of the job.
            namespace: Of the job.
            system_namespace: Of the scheduler, whose Lease says which policy it runs.
        """
        return self.call(chunk_plan(self.session, namespace or self.namespace, name, system_namespace))

    def why(self, name: str, namespace: str | None = None) -> str:
        """What a job does, or what it waits for, in one sentence."""
        return job_views.sentence(self._job(name, namespace))

    def history(self, name: str, namespace: str | None = None, *, log_lines: int = 5) -> History:
        """A job's attempts: when, where, why they ended, exit codes, last lines of their logs; and its events."""
        return self.call(self.session.history(namespace or self.namespace, name, log_lines))

    def wait(
        self,
        name: str,
        namespace: str | None = None,
        *,
        timeout: float | None = None,
        progress: bool | None = None,
        on_change: Callable[[JobDetail], None] | None = None,
    ) -> JobDetail:
        """Wait until a job has succeeded.

        Args:
            name: Of the job.
            namespace: Of the job.
            timeout: Seconds; None: for ever.
            progress: Whether to show a bar; None: on a terminal and in a notebook.
            on_change: Told each state of the job, in another thread.

        Raises:
            JobFailed: it has ended otherwise; the text says why.
            WaitedTooLong: it is not over in time; it goes on.
        """
        with JobBar(name, shown=progress) as bar:

            def note(job: TrainingJob) -> None:
                bar.show(job)
                if on_change is not None:
                    on_change(job_views.detail(job))

            place = namespace or self.namespace
            return job_views.detail(self.call(self.session.wait(place, name, note, timeout)))

    def place_of(self, body: dict[str, Any], namespace: str | None) -> str:
        """The namespace that a manifest is for: the one asked for, else its own, else the client's."""
        return namespace or body["metadata"].get("namespace") or self.namespace

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something of the session to its end."""
        return self._loop.call(work)

    def _job(self, name: str, namespace: str | None) -> TrainingJob:
        return self.call(self.session.job(namespace or self.namespace, name))


def _turn(job: JobSummary) -> tuple[int, float, str, str]:
    rank = {"Running": 0, "Starting": 0, "Waiting": 1, "Suspended": 2}.get(job.phase, 3)
    end = job.planned_completion.timestamp() if job.planned_completion else float("inf")
    return rank, end, job.namespace, job.name
