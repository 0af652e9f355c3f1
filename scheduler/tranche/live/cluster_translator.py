"""Translation of watched Kubernetes objects into planner events, and restoring a planner from them.

The controller, what-if, the chunk list and shadow mode all restore their planners here. Only the controller then keeps
its planner up to date, with the events of later changes.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from math import inf
from operator import itemgetter
from typing import Any, TypeVar

from tranche.kube.api.core_types import NodeObject, Pod, QuotaObject
from tranche.kube.api.names import PLANNED_ROLES, ROLE_CHIEF, ROLE_WORKER, GpuResources, pod_name
from tranche.kube.api.resources import SiteObject, TrainingJob
from tranche.kube.convert.pod_identity import identity, owner_uid
from tranche.kube.convert.pod_state import ended_at
from tranche.kube.convert.site_membership import sites_of
from tranche.kube.convert.trainingjob import to_job, to_site
from tranche.live import job_events
from tranche.live.foreign_usage import ForeignNodeUsage, NamespaceQuotas
from tranche.live.informers import ClusterObjects
from tranche.live.pods import pod_events
from tranche.planner import (
    ChiefEnded,
    Event,
    JobChanged,
    JobFailed,
    JobRemoved,
    JobSubmitted,
    NodeChanged,
    NodeJoined,
    NodeRemoved,
    ParameterServerEnded,
    Planner,
    PodAdmitted,
    SiteChanged,
    SiteRemoved,
    WorkerEnded,
    WorkerStarted,
)
from tranche.planner.learned_state import LearnedState, recall
from tranche.state.helper import Server
from tranche.state.window import TrackedWindow

logger = logging.getLogger(__name__)

KEPT_FORMER = 1000
"""Number of deleted jobs whose pods are known."""
E = TypeVar("E", bound=Event)
Reject = Callable[[str, Any, ValueError], None]
"""Called for an object that cannot be read, with its description for a log line, the object (None: not known which of
a namespace's quotas it is) and the error."""


def log_rejection(description: str, observed: Any, error: ValueError) -> None:
    """Log that an object cannot be read."""
    logger.error("%s cannot be read: %s", description, error)


def _identifies(server: Server, index: int, attempt: int, *, is_chief: bool) -> bool:
    planned = server.planned
    return (planned.index, planned.attempt, planned.is_chief) == (index, attempt, is_chief)


def _accept(job: TrainingJob) -> None:
    """Accept every job."""


def _end_time(pod: Pod) -> float:
    """Return when the training container of a pod ended, by the clock of its node; infinite if that is unknown."""
    ended = ended_at(pod)
    return inf if ended is None else ended


def _site_events(site: SiteObject, gpu_resources: GpuResources) -> Iterator[Event]:
    yield SiteChanged(to_site(site, gpu_resources))


class ClusterTranslator:
    """Translates watched objects, and their changes, into events for one planner.

    The events depend on what the planner already knows. Therefore the generators are lazy, and the planner must handle
    each event before the next one is requested.
    """

    def __init__(
        self,
        objects: ClusterObjects,
        planner: Planner,
        gpu_resources: GpuResources,
        clock: Callable[[], float],
        reject: Reject = log_rejection,
        check: Callable[[TrainingJob], None] = _accept,
    ) -> None:
        """Translate nothing before the first call.

        Args:
            objects: The stores of the watches; read at every call.
            planner: The planner that handles the events.
            gpu_resources: Resource names of the GPUs.
            clock: Time of the events, in seconds since the epoch.
            reject: Called for each object that cannot be read; the object is then left out.
            check: Raises a ValueError for a job whose plan cannot be taken over.
        """
        self.objects = objects
        self.nodes = ForeignNodeUsage(gpu_resources, self._holds_on_node)
        """Resources that foreign pods use on each node."""
        self._has_adopted = False
        """Whether the planner has the jobs; before, all pods of jobs are taken for its own."""
        self._planner = planner
        self._gpu_resources = gpu_resources
        self._clock = clock
        self._reject = reject
        self._check = check
        self._quotas = NamespaceQuotas(gpu_resources)
        self._former: dict[str, list[tuple[int, str]]] = {}
        """Attempts and keys of the pods that deleted jobs have left, by key of the job."""

    # ---- the whole cluster

    def restore(
        self,
        learned: LearnedState,
        handle: Callable[[Event], object],
        adopt: Callable[[Sequence[JobSubmitted], Iterator[Event]], None],
    ) -> list[JobSubmitted]:
        """Restore the planner's state from the objects, and return the restored jobs.

        Args:
            learned: What an earlier planner learned about the cluster.
            handle: Passes an event about a site, node or quota to the planner.
            adopt: Passes the jobs, and then what happened to their pods, to `Planner.restore`.
        """
        for site in self.objects.sites.values():
            for event in self.guarded(site, _site_events(site, self._gpu_resources)):
                handle(event)
        for key, pod in self.objects.pods.items():
            with self.guard(pod):
                self.nodes.note_pod(key, pod)
                self._quotas.note_pod(key, pod)
        for key, quota in self.objects.quotas.items():
            for event in self._quota_changed(key, None, quota):
                handle(event)
        for name in self.objects.nodes:
            for event in self._node_events(name):
                handle(event)
        recall(self._planner.context, learned)
        found = self._found_jobs()
        adopt(found, self._events_since(found))
        return found

    def _found_jobs(self) -> list[JobSubmitted]:
        """Return the jobs to continue; the planner learns from succeeded ones, in order of completion."""
        found: list[JobSubmitted] = []
        succeeded: list[tuple[float, str, JobSubmitted]] = []
        for resource in self.objects.jobs.values():
            ended = not job_events.needs_planner(resource)
            if ended and resource.status.phase != "Succeeded":
                continue
            for submitted in self.guarded(resource, self._submission(resource, ended=ended)):
                if ended:
                    completed = resource.status.completion_time
                    at = completed.timestamp() if completed is not None else 0.0
                    succeeded.append((at, submitted.job.key, submitted))
                else:
                    found.append(submitted)
        for _, _, submitted in sorted(succeeded, key=itemgetter(0, 1)):
            self._planner.learn_from_completed(submitted)
        return found

    def _submission(self, resource: TrainingJob, *, ended: bool) -> Iterator[JobSubmitted]:
        if ended:
            yield job_events.submission(resource, self._gpu_resources)
        else:
            self._check(resource)
            yield job_events.submission(resource, self._gpu_resources, self.objects.pods)

    def _events_since(self, found: Sequence[JobSubmitted]) -> Iterator[Event]:
        """Yield the events of restored jobs and of all pods, which `Planner.restore` handles before its first decision.

        Those of pods that are where the plans say come first: others close windows that seem to have no pod or no room.
        Then pods come in the order of their ends, because only the first failure in a gang counts.
        """
        self._has_adopted = True
        for pod in sorted(self.objects.pods.values(), key=lambda pod: (self._has_moved(pod), _end_time(pod))):
            yield from self._pod_events(None, pod)
        for key, pod in self.objects.pods.items():
            yield from self._admission(key, pod)
        for submitted in found:
            resource = self.objects.jobs[submitted.job.key]
            for event in job_events.events_of(None, resource, self._gpu_resources, self.objects.pods):
                if not isinstance(event, JobSubmitted):
                    yield event
        for name in sorted(self.nodes.recount_all()):
            yield from self._node_events(name)
        for namespace in sorted({key.partition("/")[0] for key in self.objects.quotas}):
            yield from self._quota_events(namespace)  # again: now the planner counts our pods

    # ---- pods that the planner counts

    def followed(self, events: Iterable[Event]) -> Iterator[Event]:
        """Yield events, each with those about nodes on which the planner counts other pods than before."""
        for event in events:
            yield event
            for name in sorted(self._released(event)):
                yield from self._node_events(name)

    def _released(self, event: Event) -> set[str]:
        """Return the nodes whose foreign usage changes with an event that the planner has handled.

        A window may end before its pod does: the job has ended, or only a sidecar runs on.
        """
        match event:
            case JobSubmitted() | JobChanged():
                return self.nodes.recount(event.job.key)
            case JobRemoved() | JobFailed():
                return self.nodes.recount(event.job)
            case WorkerEnded() | ParameterServerEnded() | ChiefEnded():
                state = self._planner.cluster.jobs.get(event.job)
                goes_on = state is not None and state.runs and not (state.finished or state.failed)
                return self.nodes.recount(event.job, event.attempt if goes_on else None)
        return set()

    def _holds(self, pod: Pod) -> bool:
        """Return whether the planner has a window, parameter server or chief for the pod, by owner and attempt."""
        return self._entry(pod) is not None

    def _holds_on_node(self, pod: Pod) -> bool:
        """Return whether the planner reserves room for the pod on its node; a window follows its pod to others."""
        if not self._has_adopted:
            who = identity(pod)
            return who is not None and who.role in PLANNED_ROLES
        entry = self._entry(pod)
        return entry is not None and (isinstance(entry, TrackedWindow) or entry.planned.node == pod.spec.node_name)

    def _entry(self, pod: Pod) -> TrackedWindow | Server | None:
        who = identity(pod)
        state = self._planner.cluster.jobs.get(who.job) if who is not None else None
        if who is None or state is None or owner_uid(pod.metadata) != state.job.uid:
            return None
        if pod.metadata.name != pod_name(who.job.partition("/")[2], who.role, who.index, who.attempt):
            return None
        if who.role == ROLE_WORKER:
            run = state.runs.get(who.attempt)
            return run if run is not None and run.window.index == who.index else None
        is_chief = who.role == ROLE_CHIEF
        return next((s for s in state.servers if _identifies(s, who.index, who.attempt, is_chief=is_chief)), None)

    def _has_moved(self, pod: Pod) -> bool:
        """Return whether kube-scheduler has bound a worker to another node than the planned one."""
        entry = self._entry(pod)
        return isinstance(entry, TrackedWindow) and entry.window.node != pod.spec.node_name

    def _admission(self, key: str, pod: Pod) -> Iterator[Event]:
        """Yield the event about a pod if it requests more than the planner reserves for it."""
        entry, who = self._entry(pod), identity(pod)
        if entry is None or who is None:
            return
        requests = self._quotas.requests(key)
        if not requests.fits(entry.requests):
            yield PodAdmitted(who.job, who.attempt, requests)

    # ---- changes

    def events_of(self, kind: str, key: str, old: Any, new: Any) -> Iterator[Event]:
        """Return the events of one change of a watched object.

        Args:
            kind: ``pods``, ``nodes``, ``sites``, ``jobs`` or ``quotas``.
            key: Key of the object in its store.
            old: The object before the change; None if it is new.
            new: The object after the change; None if it is gone.

        Raises:
            ValueError: the new object cannot be read.
        """
        translate: dict[str, Callable[[str, Any, Any], Iterator[Event]]] = {
            "pods": self._pod_changed,
            "nodes": self._node_changed,
            "sites": self._site_changed,
            "jobs": self._job_changed,
            "quotas": self._quota_changed,
        }
        return translate[kind](key, old, new)

    def _pod_changed(self, key: str, old: Pod | None, new: Pod | None) -> Iterator[Event]:
        for name in self.nodes.note_pod(key, new):
            yield from self._node_events(name)
        # Before the event that ends the pod: until now the API server counts it against the quota.
        if self._quotas.note_pod(key, new):
            yield from self._quota_events(key.partition("/")[0])
        if new is not None:
            yield from self._admission(key, new)
        yield from self._pod_events(old, new)

    def _pod_events(self, old: Pod | None, new: Pod | None) -> Iterator[Event]:
        replaced = old is not None and new is not None and old.metadata.uid != new.metadata.uid
        for before, after in ((old, None), (None, new)) if replaced else ((old, new),):
            if not self._belongs_to_deleted_job(after or before):
                pods, nodes = self.objects.pods.values, self.objects.nodes.get
                yield from pod_events.events_of(before, after, self._clock(), pods, nodes)

    def _belongs_to_deleted_job(self, pod: Pod | None) -> bool:
        """Return whether the pod's job is deleted and another job has its name now; the attempts are not that job's."""
        who = identity(pod) if pod is not None else None
        state = self._planner.cluster.jobs.get(who.job) if who is not None else None
        return pod is not None and state is not None and owner_uid(pod.metadata) != state.job.uid

    def _node_changed(self, name: str, old: NodeObject | None, new: NodeObject | None) -> Iterator[Event]:
        yield from self._node_events(name)
        for site in sorted(self._unlimited_sites_of(new) - self._unlimited_sites_of(old)):
            yield NodeJoined(name, site)

    def _unlimited_sites_of(self, node: NodeObject | None) -> set[str]:
        """Return all unlimited sites that select the node, since pods of any of them may run there."""
        sites = self.objects.sites
        chosen = sites_of(node.metadata.labels, sites) if node is not None else ()
        return {site for site in chosen if sites[site].spec.unlimited}

    def _node_events(self, name: str) -> Iterator[Event]:
        """Yield the events for a node if it differs from the planner's state of it.

        A node that was deleted and registered again at once is another machine, although the store never missed it.
        """
        observed, node = self.objects.nodes.get(name), None
        if observed is not None:
            with self.guard(observed):
                node = self.nodes.node(observed, self.objects.sites)
        known = self._planner.cluster.nodes.get(name)
        if known is not None and (node is None or node.uid != known.node.uid):
            yield NodeRemoved(name)
        if node is not None and not self._planner.is_current(node):
            yield NodeChanged(node)

    def _site_changed(self, name: str, old: SiteObject | None, new: SiteObject | None) -> Iterator[Event]:
        if old is not None and new is not None and old.spec == new.spec:
            return
        yield SiteChanged(to_site(new, self._gpu_resources)) if new is not None else SiteRemoved(name)
        for node in self.objects.nodes:
            yield from self._node_events(node)

    def _quota_changed(self, key: str, old: QuotaObject | None, new: QuotaObject | None) -> Iterator[Event]:
        self._quotas.note_quota(key, new)
        yield from self._quota_events(key.partition("/")[0])

    def _quota_events(self, namespace: str) -> Sequence[Event]:
        """Return the events for the namespace's quotas that differ from the planner's state of them."""
        try:
            return self._quotas.changes(namespace, self._planner.cluster.quotas, self._holds)
        except ValueError as error:
            self._reject(f"a ResourceQuota in namespace {namespace}", None, error)
            return []

    def _job_changed(self, key: str, old: TrainingJob | None, new: TrainingJob | None) -> Iterator[Event]:
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            self._note_former(old)
        for event in job_events.events_of(old, new, self._gpu_resources, self.objects.pods):
            if isinstance(event, JobSubmitted) and event.plan is None:
                left = (attempt for attempt, pod in self._former.pop(key, ()) if pod in self.objects.pods)
                event = event._replace(former_attempts=max(left, default=0))
            yield event
            if isinstance(event, JobSubmitted) and event.plan is not None and new is not None:
                yield from self._planned_pod_events(new)
            if isinstance(event, JobRemoved):  # the planner does not count the job's terminating pods any more
                yield from self._quota_events(key.partition("/")[0])

    def _note_former(self, job: TrainingJob) -> None:
        """Let a later job of the same name number its pods after those of this one.

        The API server refuses a second pod of a name, so the later job would have to wait until the pods of this one
        have stopped, for their whole grace period, although other GPUs are free.
        """
        left = [(attempt, pod.key) for _, attempt, pod in job_events.planned_pods(job, self.objects.pods)]
        if left:
            self._former[job.key] = left
        if len(self._former) > KEPT_FORMER:
            del self._former[next(iter(self._former))]

    def _planned_pod_events(self, job: TrainingJob) -> Iterator[Event]:
        """Yield the past events of the pods of a job whose plan the planner takes over while it leads.

        The plan may be a late one of the earlier leader, or the planner could not read the job before.
        """
        planned = (pod for _, _, pod in job_events.planned_pods(job, self.objects.pods))
        for pod in sorted(planned, key=_end_time):
            yield from self._admission(pod.key, pod)
            yield from self._pod_events(None, pod)

    def all_jobs_changed(self) -> Iterator[Event]:
        """Yield the events with the specifications of all jobs that the planner plans."""
        for resource in list(self.objects.jobs.values()):
            with self.guard(resource):
                if not job_events.is_job_over(resource):
                    yield JobChanged(to_job(resource, self._gpu_resources))

    def guarded(self, observed: Any, events: Iterator[E]) -> Iterator[E]:
        """Yield events until the object turns out to be unreadable.

        Only the translation is guarded: an error of the planner that handles an event is not an error of the object.
        """
        while True:
            event = None
            with self.guard(observed):
                event = next(events, None)
            if event is None:
                return
            yield event

    @contextmanager
    def guard(self, observed: Any) -> Iterator[None]:
        """Reject the object on a ValueError inside, so that one object that cannot be read does not stop the others."""
        try:
            yield
        except ValueError as error:
            name = getattr(getattr(observed, "metadata", None), "name", "?")
            self._reject(f"{type(observed).__name__} {name}", observed, error)


def restore_planner(
    planner: Planner,
    objects: ClusterObjects,
    gpu_resources: GpuResources,
    now: float,
    learned: LearnedState | None = None,
    foreign: Sequence[JobSubmitted] = (),
) -> None:
    """Give a new planner the state that a restarted scheduler would restore. Nothing is written to the cluster.

    Args:
        planner: A planner that has handled no event yet.
        objects: The objects of the cluster.
        gpu_resources: Resource names of the GPUs.
        now: Seconds since the epoch.
        learned: What an earlier planner learned about the cluster.
        foreign: Jobs of other schedulers to restore as if they were TrainingJobs; those with a plan are running.
    """
    starts = (
        WorkerStarted(event.job.key, window.attempt, window.start)
        for event in foreign
        for window in (event.plan.windows if event.plan is not None else ())
        if window.start
    )

    def adopt(found: Sequence[JobSubmitted], events: Iterator[Event]) -> None:
        planner.restore([*found, *foreign], now, chain(events, starts))

    translator = ClusterTranslator(objects, planner, gpu_resources, lambda: now)
    translator.restore(learned or LearnedState(), lambda event: planner.handle(event, now), adopt)
