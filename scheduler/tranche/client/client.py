"""`Client`, the Python API for TrainingJobs."""

from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar

from tranche.client.api_session import OVER, Session
from tranche.client.background_loop import LoopThread
from tranche.client.chunk_plan import ChunkPlan, chunk_plan
from tranche.client.errors import refusal
from tranche.client.job_history import History
from tranche.client.job_usage import JobUsage, ended_within, usage_of
from tranche.client.kube_context import present_namespace
from tranche.client.manifest import Manifest, read_manifest
from tranche.client.progress_bar import JobBar
from tranche.client.scheduler_lease import absence, read_lease
from tranche.client.what_if import SYSTEM_NAMESPACE, WhatIf, what_if
from tranche.kube.api.resources import TrainingJob
from tranche.kube.client.client import ApiClient
from tranche.kube.client.errors import ApiError
from tranche.live.lease_annotations import read_config
from tranche.live.planner_config import PlannerConfig
from tranche.web import job_views
from tranche.web.job_views import JobDetail, JobSummary

T = TypeVar("T")


class Client:
    """Synchronous client of a cluster with tranche.

    It uses only the API server, with the permissions of the kubeconfig user. Close it, or use it in a ``with`` block.

    Every method takes `namespace`; the default is the namespace of the client. Every method raises `ClusterError` when
    the API server cannot be reached or rejects the request, and `NoSuchJob` if the job does not exist.
    """

    def __init__(
        self, namespace: str | None = None, *, kubeconfig: str | None = None, context: str | None = None
    ) -> None:
        """Read the kubeconfig without contacting the cluster.

        Args:
            namespace: Namespace of jobs; default: the namespace of the context.
            kubeconfig: Kubeconfig file; default: ``$KUBECONFIG``, else the pod's service account, else
                ``~/.kube/config``.
            context: Context of the kubeconfig; default: its current context.

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
        """Close the connections; repeated calls have no effect."""
        if self._open:
            self._open = False
            self._loop.call(self._stack.aclose())
            self._loop.stop()

    def submit(self, manifest: Manifest, namespace: str | None = None) -> JobDetail:
        """Create a TrainingJob.

        Args:
            manifest: Object, YAML text, or path of a file.
            namespace: Namespace; default: that of the manifest, else that of the client.

        Raises:
            ManifestError: it is not exactly one TrainingJob, or the API server rejects it.
        """
        body = read_manifest(manifest)
        place = self.place_of(body, namespace)
        return job_views.detail(self.call(self.session.create(place, body)))

    def what_if(
        self, manifest: Manifest, namespace: str | None = None, *, system_namespace: str = SYSTEM_NAMESPACE
    ) -> WhatIf:
        """Forecast when a job would start and complete if it were submitted now; nothing is created.

        A planner in this process plans the whole cluster; this requires permission to list jobs, sites, pods, nodes and
        quotas of all namespaces.

        Args:
            manifest: As for `submit`.
            namespace: As for `submit`.
            system_namespace: Namespace of the scheduler's Lease, which records its policy.

        Raises:
            ManifestError: it is not exactly one TrainingJob, or the API server rejects it.
        """
        body = read_manifest(manifest)
        return self.call(what_if(self.session, self.place_of(body, namespace), body, system_namespace))

    def queue(
        self, namespace: str | None = None, *, all_namespaces: bool = False, over: bool = False
    ) -> list[JobSummary]:
        """List running jobs, then waiting jobs, each by planned completion.

        Args:
            namespace: Namespace of the jobs.
            all_namespaces: List jobs of all namespaces.
            over: Include ended jobs, at the end.
        """
        jobs = self.call(self.session.jobs("" if all_namespaces else namespace or self.namespace))
        chosen = [job_views.summary(job) for job in jobs if over or job.status.phase not in OVER]
        return sorted(chosen, key=_list_position)

    def usage(
        self,
        namespace: str | None = None,
        *,
        all_namespaces: bool = False,
        since: datetime | None = None,
        until: datetime | None = None,
        system_namespace: str = SYSTEM_NAMESPACE,
    ) -> list[JobUsage]:
        """Return the GPU time of the existing jobs, by namespace and name.

        Args:
            namespace: Namespace of the jobs.
            all_namespaces: Include the jobs of all namespaces.
            since: Omit jobs that ended before this time.
            until: Only jobs that ended before this time; default: also those that have not ended.
            system_namespace: Namespace of the scheduler's Lease, which records the resource names of the GPUs.
        """
        jobs = self.call(self.session.jobs("" if all_namespaces else namespace or self.namespace))
        config = read_config(self.call(read_lease(self.session, system_namespace))) or PlannerConfig()
        now = self.session.now().timestamp()
        chosen = [usage_of(job, config.gpu_resources, now) for job in jobs if ended_within(job, since, until)]
        return sorted(chosen, key=lambda usage: (usage.namespace, usage.name))

    def scheduler_absence(self, system_namespace: str = SYSTEM_NAMESPACE) -> str:
        """Return since when no scheduler leads, as a sentence; "" if one does, or if this user may not know."""
        return absence(self.call(read_lease(self.session, system_namespace)), self.session.now())

    def plan(self, name: str, namespace: str | None = None) -> JobDetail:
        """Return the plan and progress of a job."""
        return job_views.detail(self._job(name, namespace))

    def chunks(self, name: str, namespace: str | None = None, *, system_namespace: str = SYSTEM_NAMESPACE) -> ChunkPlan:
        """Return the node and time window of each chunk of a job, by the current plan.

        A planner in this process plans the whole cluster; this requires permission to list jobs, sites, pods, nodes and
        quotas of all namespaces.

        Args:
            name: Name of the job.
            namespace: Namespace of the job.
            system_namespace: Namespace of the scheduler's Lease, which records its policy.
        """
        return self.call(chunk_plan(self.session, namespace or self.namespace, name, system_namespace))

    def why(self, name: str, namespace: str | None = None) -> str:
        """Explain in one sentence what a job does or waits for."""
        return job_views.sentence(self._job(name, namespace))

    def history(self, name: str, namespace: str | None = None, *, log_lines: int = 5) -> History:
        """Return the attempts of a job (times, nodes, outcomes, exit codes, last log lines) and its events."""
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
            name: Name of the job.
            namespace: Namespace of the job.
            timeout: Time limit in seconds; None: no limit.
            progress: Whether to show a progress bar; None: only on a terminal or in a notebook.
            on_change: Called in another thread with each state of the job.

        Raises:
            JobFailed: the job ended without success; the message has the reason.
            WaitedTooLong: the job has not ended in time; it continues.
        """
        with JobBar(name, shown=progress) as bar:

            def note(job: TrainingJob) -> None:
                bar.show(job)
                if on_change is not None:
                    on_change(job_views.detail(job))

            place = namespace or self.namespace
            return job_views.detail(self.call(self.session.wait(place, name, note, timeout)))

    def place_of(self, body: dict[str, Any], namespace: str | None) -> str:
        """Return the namespace for a manifest: the argument, else its own, else that of the client."""
        return namespace or body["metadata"].get("namespace") or self.namespace

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of the session and wait for its result."""
        return self._loop.call(work)

    def _job(self, name: str, namespace: str | None) -> TrainingJob:
        return self.call(self.session.job(namespace or self.namespace, name))


def _list_position(job: JobSummary) -> tuple[int, float, str, str]:
    rank = {"Running": 0, "Starting": 0, "Waiting": 1, "Suspended": 2}.get(job.phase, 3)
    end = job.planned_completion.timestamp() if job.planned_completion else float("inf")
    return rank, end, job.namespace, job.name
