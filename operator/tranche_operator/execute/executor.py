"""Execution of the actions of `reconcile` through the API server.

Every request is idempotent, so the process may stop after any of them. An object that is already gone is not an error
(404, or 409 for another UID). A permanent rejection becomes a condition and an event. Any other failure is raised after
all other actions have been tried, so that the queue backs off.
"""

import asyncio
import itertools
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from tranche.kube.api.names import OPERATOR_MANAGER, role_of
from tranche.kube.api.resources import API_VERSION, PlannedWindow, TrainingJob
from tranche.kube.client.client import ApiClient, ApiError, Unreachable
from tranche.model.stop_text import preemption_text
from tranche_operator import api_paths
from tranche_operator.execute.pod_creator import Refusal, create_pods, is_transient_403
from tranche_operator.execute.pod_patch import PodPatch, pod_patch
from tranche_operator.execute.reconciler_cache import ReconcilerCache
from tranche_operator.execute.template_check import admitted_verdict, changed_admission, check_template
from tranche_operator.reconcile.actions import (
    Action,
    CheckByCreation,
    CheckTemplate,
    CreatePod,
    CreateService,
    DeleteJob,
    DeletePod,
    EmitEvent,
    EmitPendingEvent,
    EvictPod,
    Manifest,
    ReleasePod,
    RequeueAfter,
    UngatePod,
    UpdateService,
    WithdrawPod,
    WriteStatus,
)
from tranche_operator.reconcile.event_merge import OPENED, merged
from tranche_operator.reconcile.event_rules import eviction_events, victim_events
from tranche_operator.reconcile.observed import (
    SERVICE_REJECTED,
    Observed,
    PodView,
    ServiceState,
    entries_of,
    is_open,
)
from tranche_operator.reconcile.pod_creation import name_taken, needs_service, ungate
from tranche_operator.reconcile.status import PASSING
from tranche_operator.settings import Settings
from tranche_operator.watch.pod_decoder import read_pod

logger = logging.getLogger(__name__)

PARALLEL = 16
"""Number of parallel requests for one job."""
CHANGED_SECONDS = 0.5
"""Delay of the next reconcile after an object has changed since it was read."""
CREATED_SECONDS = 0.5
"""Delay of the reconcile after a creation, which updates the status: the watch event of a known pod is not relevant."""
BUSY_CREATED_SECONDS = 5.0
"""The same while many jobs wait: most pods start within it, and their events cause a reconcile in any case."""
PASSING_SECONDS = 1.0
"""Delay of the next reconcile after a transient rejection."""
INSISTENT_REFUSALS = 5
"""Number of the attempt, 75 s after the first, at which a pod that several budgets select is deleted: the plan has not
changed meanwhile, although another leader may have had to take over first."""
MAX_UNREADY = 3
"""Number of answers that a budget is not computed yet, after which it refuses: a new one is computed within a second,
but one with a percentage never, because TrainingJobs have no scale subresource."""
SEVERAL_BUDGETS = "more than one PodDisruptionBudget"
"""Part of the message of the Eviction API for such a pod."""
MAX_CHANGES = 3
"""Number of such answers in a row for one object after which the next one is a failure: a policy may give it, too."""
_JSON_PATCH = "application/json-patch+json"
_CHANGED = frozenset({409, 422})
"""Status codes of a request whose precondition, a UID or a JSON patch ``test``, no longer holds."""


class EventSink(Protocol):
    """Receiver of events."""

    async def emit(self, job: TrainingJob, event: EmitEvent) -> None:
        """Write an event about a job, now or later."""


@dataclass(slots=True)
class _ActionRun:
    """State of one execution of a job's actions."""

    observed: Observed
    limit: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(PARALLEL))
    failures: list[ApiError] = field(default_factory=list)
    admitted: dict[str, tuple[Manifest, dict[str, Any]]] = field(default_factory=dict)
    """One created pod of each role, as sent and as admitted."""
    evicted: list[EvictPod] = field(default_factory=list)
    """Pods that were evicted."""
    events: list[EmitEvent] = field(default_factory=list)
    """Events, written after all other actions, so that they delay no pod."""
    delay_seconds: float | None = None

    @property
    def key(self) -> str:
        return self.observed.key

    @property
    def log(self) -> "logging.LoggerAdapter[logging.Logger]":
        """Logger whose records have the job as a field."""
        return logging.LoggerAdapter(logger, {"job": self.key})

    @property
    def namespace(self) -> str:
        return self.observed.key.partition("/")[0]

    @property
    def name(self) -> str:
        return self.observed.key.partition("/")[2]

    @property
    def job(self) -> TrainingJob:
        if self.observed.job is None:
            raise ValueError(f"{self.key}: this action needs the TrainingJob, which no longer exists")
        return self.observed.job

    def requeue_after(self, seconds: float) -> None:
        """Reconcile the job again after at most this many seconds."""
        self.delay_seconds = seconds if self.delay_seconds is None else min(self.delay_seconds, seconds)


class ActionExecutor:
    """Executor of actions through the API server."""

    def __init__(
        self,
        client: ApiClient,
        cache: ReconcilerCache,
        recorder: EventSink,
        settings: Settings,
        clock: Callable[[], datetime],
        count: Callable[[str, str], None] = lambda role, result: None,
        may_have_budget: Callable[[str], bool] = lambda namespace: True,
        postpone_status: Callable[[str, bool], bool] = lambda key, passing: False,
        status_written: Callable[[str], None] = lambda key: None,
    ) -> None:
        """Store the arguments.

        Args:
            client: Client of the API server.
            cache: Results of requests that later reconciles need.
            recorder: Writes or enqueues events.
            settings: The operator's settings.
            clock: Returns the current time, with a time zone.
            count: Called for every pod with its role and the result: created, evicted, deleted or refused.
            may_have_budget: Returns whether pods of a namespace may have a disruption budget.
            postpone_status: Called with the key of a job and whether its phase is a passing one; returns whether its
                status has to wait. Then the job is reconciled again later.
            status_written: Called with the key of a job whose status was written.
        """
        self._postpone_status = postpone_status
        self._status_written = status_written
        self._may_have_budget = may_have_budget
        self._count = count
        self._client = client
        self._cache = cache
        self._recorder = recorder
        self._settings = settings
        self._clock = clock

    async def execute(self, observed: Observed, actions: list[Action]) -> float | None:
        """Execute the actions of one job in the given order, those of one kind in parallel.

        Returns:
            Seconds after which the job is to be reconciled again, or None.

        Raises:
            ApiError: the first failure, after all actions have been tried; at once if the API server is unreachable.
        """
        run = _ActionRun(observed)
        for kind, group in itertools.groupby(actions, key=type):
            if kind is CreatePod:
                created = [action for action in group if isinstance(action, CreatePod)]
                for staging in (False, True):
                    await self._create_pods(run, [one for one in created if one.is_staging is staging], staging=staging)
            else:
                await asyncio.gather(*(self._try(run, action) for action in group))
            for failure in run.failures:
                if isinstance(failure, Unreachable):
                    raise failure
        run.events += eviction_events(run.evicted)
        if run.events and observed.job is not None:
            await asyncio.gather(*(self._recorder.emit(observed.job, event) for event in merged(run.events)))
        for preemptor, event in self._victim_events(run):
            await self._recorder.emit(preemptor, event)
        if run.failures:
            raise max(run.failures, key=lambda failure: failure.retry_after or 0.0)
        return run.delay_seconds

    def _victim_events(self, run: _ActionRun) -> Iterator[tuple[TrainingJob, EmitEvent]]:
        """Yield the events of other jobs for which pods of this one were evicted, with these jobs as last read."""
        for key, event in victim_events(run.evicted, run.key).items():
            try:
                preemptor = self._cache.jobs.get(key)
            except ValueError:
                continue
            if preemptor is not None:
                yield preemptor, event

    async def _try(self, run: _ActionRun, action: Action) -> None:
        async with run.limit:
            try:
                await self._dispatch(run, action)
            except ApiError as error:
                run.failures.append(error)

    async def _dispatch(self, run: _ActionRun, action: Action) -> None:
        match action:
            case ReleasePod() | UngatePod() | WithdrawPod():
                await self._patch_pod(run, action)
            case EvictPod():
                await self._evict(run, action)
            case DeletePod():
                await self._delete_pod(run, action)
            case CreateService():
                await self._create_service(run, action)
            case UpdateService():
                await self._update_service(run, action)
            case CheckTemplate() | CheckByCreation():
                await self._check_template(run, action)
            case WriteStatus():
                await self._write_status(run, action)
            case EmitEvent():
                self._note_event(run, action)
            case EmitPendingEvent():
                await self._emit_pending_event(run, action)
            case DeleteJob():
                await self._delete_job(run, action)
            case RequeueAfter():
                run.requeue_after(action.seconds)

    async def _check_template(self, run: _ActionRun, action: CheckTemplate | CheckByCreation) -> None:
        if isinstance(action, CheckTemplate):
            known, now = self._cache.verdicts.get(run.key), self._clock()
            verdict = await check_template(self._client, run.job, action, known, self._settings, now)
            self._cache.verdicts[run.key] = verdict
            run.requeue_after(0.0)
        elif action.roles <= run.admitted.keys():
            self._cache.verdicts[run.key] = admitted_verdict(action.generation, run.admitted)

    def _note_event(self, run: _ActionRun, action: EmitEvent) -> None:
        run.events.append(action)
        if action.ended:
            self._cache.reported.setdefault(run.key, set()).update(action.ended)

    async def _emit_pending_event(self, run: _ActionRun, action: EmitPendingEvent) -> None:
        now = self._clock()
        pause = self._cache.event_slot(run.key, self._settings, now)
        if pause:
            run.requeue_after(pause)
        else:
            self._cache.record_event(run.key, action.sentence, now)
            if action.unplannable:
                run.events.append(EmitEvent("Warning", action.unplannable, action.sentence))
            else:
                run.events.append(EmitEvent("Normal", "Pending", action.sentence))

    async def _patch_pod(self, run: _ActionRun, action: PodPatch) -> None:
        operations, done = pod_patch(action)
        path = api_paths.pod(run.namespace, action.name)
        answer = await self._send(run, "PATCH", path, operations, content_type=_JSON_PATCH)
        if answer is not None:
            self._cache.pods.note(*read_pod(answer))
            run.log.info("%s: %s", run.key, done)

    async def _evict(self, run: _ActionRun, action: EvictPod) -> None:
        """Stop a pod: by the Eviction API, which is slow, if a disruption budget may cover it, else by a delete."""
        if self._may_have_budget(run.namespace):
            stopped = await self._ask_budgets(run, action)
        else:
            stopped = await self._stop(run, action)
        if stopped:
            grace = action.grace_seconds
            self._cache.pods.expect_end(action.uid)
            why = preemption_text(action.preempted_by, action.why) if action.preempted_by else action.why
            run.log.info("%s: evicted pod %s (grace period %d s): %s", run.key, action.name, grace, why)
            self._count(role_of(run.name, action.name), "evicted")
            run.evicted.append(action)

    async def _ask_budgets(self, run: _ActionRun, action: EvictPod) -> bool:
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": action.name, "namespace": run.namespace},
            "deleteOptions": {"gracePeriodSeconds": action.grace_seconds, "preconditions": {"uid": action.uid}},
        }
        path = f"{api_paths.pod(run.namespace, action.name)}/eviction"
        try:
            answer = await self._send(run, "POST", path, body)
        except ApiError as error:
            if error.status == 500 and SEVERAL_BUDGETS in error.message:
                return await self._bypass_budgets(run, action, error.message)
            if error.status != 429 or "DisruptionBudget" not in error.causes:
                raise
            message = error.causes["DisruptionBudget"] or error.message
            if error.retry_after:
                if self._cache.count_change(run.key, path) <= MAX_UNREADY:
                    raise ApiError(error.status, error.reason, message) from error
                message = f"{message.rstrip('.')}; if it has a percentage, use a number: TrainingJobs have no scale"
            self._cache.refuse(run.key, action.name, message, self._settings, self._clock())
            self._report_refusal(run, action, message)
            return False
        return answer is not None

    async def _bypass_budgets(self, run: _ActionRun, action: EvictPod, message: str) -> bool:
        """Stop a pod that several disruption budgets select, which the Eviction API never evicts.

        A pod that stops for its own job is deleted: budgets do not protect pods from their own controller. A pod that
        makes way for another job is refused at first, so that the planner plans without it. It is deleted if the plan
        does not change, which is the case if its job cannot continue.
        """
        refused = self._cache.refuse(run.key, action.name, message, self._settings, self._clock(), "SeveralBudgets")
        if action.preempted_by and refused < INSISTENT_REFUSALS:
            self._report_refusal(run, action, message)
            return False
        text = f"pod {action.name} is deleted: several disruption budgets select it, so it cannot be evicted"
        run.events.append(EmitEvent("Warning", "BudgetsBypassed", text, action.name))
        return await self._stop(run, action)

    def _report_refusal(self, run: _ActionRun, action: EvictPod, message: str) -> None:
        self._count(role_of(run.name, action.name), "refused")
        text = f"the eviction of pod {action.name} was refused: {message}"
        run.events.append(EmitEvent("Warning", "EvictionRefused", text, action.name))
        run.requeue_after(0.0)

    async def _stop(self, run: _ActionRun, action: EvictPod | DeletePod, *, version: int = 0) -> bool:
        path = api_paths.pod(run.namespace, action.name)
        grace = action.grace_seconds
        return await self._delete(run, path, action.uid, version=version, gracePeriodSeconds=grace)

    async def _delete_pod(self, run: _ActionRun, action: DeletePod) -> None:
        if await self._stop(run, action, version=action.version):
            self._cache.pods.expect_end(action.uid)
            run.log.info("%s: deleted pod %s", run.key, action.name)
            self._count(role_of(run.name, action.name), "deleted")

    async def _delete_job(self, run: _ActionRun, action: DeleteJob) -> None:
        if await self._delete(run, api_paths.job(run.namespace, run.name), action.uid, propagationPolicy="Background"):
            run.log.info("%s: deleted the job: runPolicy.ttlSecondsAfterFinished has passed", run.key)

    async def _delete(self, run: _ActionRun, path: str, uid: str, *, version: int = 0, **options: str | int) -> bool:
        preconditions = {"uid": uid} | ({"resourceVersion": str(version)} if version else {})
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions, **options}
        return await self._send(run, "DELETE", path, body) is not None

    async def _create_service(self, run: _ActionRun, action: CreateService) -> None:
        try:
            params = {"fieldManager": OPERATOR_MANAGER}
            path = api_paths.services(run.namespace)
            await self._client.request("POST", path, body=action.manifest, params=params)
        except ApiError as error:
            is_taken = error.status == 409
            if is_taken and run.observed.service is not ServiceState.FOREIGN:
                self._forget_service_rejection(run)
                self._cache.services[run.key] = run.job.metadata.uid, float("-inf")
                run.requeue_after(0.0)
                return
            event = EmitEvent("Warning", "ServiceRejected", error.message)
            if is_taken:
                event = EmitEvent("Warning", "ServiceNameTaken", name_taken(run.job))
            if error.status in (403, 409, 422):
                run.events.append(event)
                if await self._note_service_refusal(run, f"Service {run.name}: {event.message}", error):
                    return
            raise
        self._forget_service_rejection(run)
        self._cache.services[run.key] = run.job.metadata.uid, time.monotonic()
        run.log.info("%s: created service %s", run.key, run.name)

    async def _update_service(self, run: _ActionRun, action: UpdateService) -> None:
        patch: list[dict[str, Any]] = [
            {"op": "test", "path": "/spec/selector", "value": action.former},
            {"op": "replace", "path": "/spec/selector", "value": action.selector},
        ]
        path = f"{api_paths.services(run.namespace)}/{run.name}"
        if await self._send(run, "PATCH", path, patch, content_type=_JSON_PATCH) is not None:
            self._cache.services[run.key] = run.job.metadata.uid, time.monotonic()
            run.log.info("%s: updated the selector of service %s", run.key, run.name)

    async def _note_service_refusal(self, run: _ActionRun, message: str, error: ApiError) -> bool:
        """Treat the refusal of the Service like that of a worker that needs it; return whether there is one."""
        entries = entries_of(run.job).items()
        windows = [name for name, entry in entries if isinstance(entry, PlannedWindow) and is_open(entry)]
        if not (windows and needs_service(run.job)):
            return False
        refusal = Refusal(windows[0], SERVICE_REJECTED, message, is_transient_403(error))
        await self._note_refusal(run, refusal, staging=False)
        return True

    def _forget_service_rejection(self, run: _ActionRun) -> None:
        """Let the pods be created that waited for the Service."""
        self._cache.forbidden.pop(run.key, None)
        known = self._cache.rejections.get(run.key)
        if known is not None and known.is_of_service:
            del self._cache.rejections[run.key]
            run.requeue_after(0.0)

    async def _create_pods(self, run: _ActionRun, actions: list[CreatePod], *, staging: bool) -> None:
        if not actions:
            return
        creation = await create_pods(self._client, run.job, actions)
        run.admitted |= creation.admitted
        self._note_changed_admission(run, creation.admitted)
        for pod in creation.pods:
            self._cache.pods.note(run.key, pod)
        if creation.pods:
            run.requeue_after(BUSY_CREATED_SECONDS if run.observed.is_busy else CREATED_SECONDS)
        for action in creation.created:
            name = action.manifest["metadata"]["name"]
            run.log.info("%s: created pod %s (%s)", run.key, name, action.what)
            self._count(role_of(run.name, name), "created")
            run.events.append(EmitEvent("Normal", OPENED[action.role], action.what, starts=((action.site, 1),)))
        if not staging:
            await self._start_gang(run, creation.pods)
        if creation.error is not None:
            run.failures.append(creation.error)
        if creation.refusal is not None:
            await self._note_refusal(run, creation.refusal, staging=staging)
        elif creation.error is None:
            self._cache.forbidden.pop(run.key, None)
            self._cache.rejections_of(staging=staging).pop(run.key, None)

    def _note_changed_admission(self, run: _ActionRun, created: dict[str, tuple[Manifest, dict[str, Any]]]) -> None:
        """Let the status say what admission makes of the job's pods, if that has changed since the dry run."""
        known = run.job.status.admitted
        if known is None or known.generation != run.job.metadata.generation:
            return
        verdict = changed_admission(known, created)
        if verdict is not None:
            run.log.info("%s: admission has changed the pods in another way than in the dry run", run.key)
            self._cache.verdicts[run.key] = verdict
            run.requeue_after(0.0)

    async def _start_gang(self, run: _ActionRun, created: list[PodView]) -> None:
        """Remove the gates of a gang that is complete, without waiting for the next reconcile."""
        own = [pod for pod in run.observed.pods if pod.owner == run.job.metadata.uid]
        ungated = ungate(run.job, (*own, *created), entries_of(run.job))
        await asyncio.gather(*(self._try(run, action) for action in ungated))

    async def _note_refusal(self, run: _ActionRun, refusal: Refusal, *, staging: bool) -> None:
        pod, reason, message = refusal.pod, refusal.reason, refusal.message
        self._count(role_of(run.name, pod), "refused")
        now = self._clock()
        if refusal.passing and self._cache.is_transient(run.key, self._settings, now):
            run.log.info(
                "%s: pod %s rejected (%s), retrying in %g s: %s", run.key, pod, reason, PASSING_SECONDS, message
            )
            run.requeue_after(PASSING_SECONDS)
            return
        rejection = self._cache.reject(run.key, pod, reason, message, self._settings, now, staging=staging)
        pause = (rejection.until - self._clock()).total_seconds()
        run.log.warning("%s: pod %s rejected (%s), retrying in %.0f s: %s", run.key, pod, reason, pause, message)
        run.events.append(EmitEvent("Warning", "PodsRejected", f"{pod}: {message}"))
        run.requeue_after(0.0)

    async def _write_status(self, run: _ActionRun, action: WriteStatus) -> None:
        if action.may_wait and self._postpone_status(run.key, action.status["phase"] in PASSING):
            self._cache.times[run.key] = action.times
            return
        if self._cache.jobs.has_newer(run.key, action.resource_version):
            run.requeue_after(0.0)
            return
        document = {
            "apiVersion": API_VERSION,
            "kind": "TrainingJob",
            "metadata": {
                "name": run.name,
                "namespace": run.namespace,
                "resourceVersion": action.resource_version,
            },
            "status": action.status,
        }
        path = f"{api_paths.job(run.namespace, run.name)}/status"
        try:
            self._cache.jobs.note(run.key, await self._client.apply(path, document, OPERATOR_MANAGER))
        except ApiError as error:
            if error.status not in (404, 409):
                raise
            self._cache.jobs.drop(run.key)
            repeated = error.status == 404 or self._cache.count_change(run.key, path) > 1
            run.requeue_after(CHANGED_SECONDS if repeated else 0.0)
            return
        self._cache.forget_changes(run.key, path)
        self._cache.times.pop(run.key, None)
        self._status_written(run.key)
        run.events += action.news
        before, phase = run.job.status.phase, action.status["phase"]
        if phase != "Waiting":
            self._cache.has_workers(run.key)
        if before != phase:
            run.log.info("%s: phase %s", run.key, f"{before} -> {phase}" if before else phase)

    async def _send(
        self, run: _ActionRun, method: str, path: str, body: object, content_type: str = "application/json"
    ) -> dict[str, Any] | None:
        """Send a request; return the response, or None if the object is gone or has changed since it was read.

        Raises:
            ApiError: if the request fails for another reason.
        """
        try:
            answer = await self._client.request(method, path, body=body, content_type=content_type)
        except ApiError as error:
            if error.status not in (404, *_CHANGED):
                raise
            if error.status in _CHANGED:
                if self._cache.count_change(run.key, path) > MAX_CHANGES:
                    raise
                run.requeue_after(CHANGED_SECONDS)
                return None
            answer = None
        self._cache.forget_changes(run.key, path)
        return answer
