"""State that the process keeps between reconciles; losing it costs only repeated requests."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from tranche.kube.api.resources import SiteSpec
from tranche_operator.reconcile.event_merge import SPACING_SECONDS
from tranche_operator.reconcile.observed import Rejection, TemplateVerdict, Wait
from tranche_operator.reconcile.status import PodTimes
from tranche_operator.settings import Settings
from tranche_operator.watch.job_cache import JobCache
from tranche_operator.watch.pod_cache import PodCache


@dataclass(slots=True)
class ReconcilerCache:
    """Cached results, by job key unless stated otherwise."""

    pods: PodCache = field(default_factory=PodCache)
    jobs: JobCache = field(default_factory=JobCache)
    uids: dict[str, str] = field(default_factory=dict)
    """UIDs of the jobs that the results are about."""
    verdicts: dict[str, TemplateVerdict] = field(default_factory=dict)
    rejections: dict[str, Rejection] = field(default_factory=dict)
    staging_rejections: dict[str, Rejection] = field(default_factory=dict)
    forbidden: dict[str, datetime] = field(default_factory=dict)
    """Start of the current transient rejections of the job's pods."""
    refusals: dict[str, dict[str, Rejection]] = field(default_factory=dict)
    """Evictions that a disruption budget refused, by pod name."""
    reported: dict[str, set[str]] = field(default_factory=dict)
    """UIDs of preempted pods whose end an event has reported."""
    sites: dict[str, tuple[SiteSpec | None, float]] = field(default_factory=dict)
    """Sites by name (None: not declared), and when they were read on the monotonic clock."""
    services: dict[str, tuple[str, float]] = field(default_factory=dict)
    """UID of the job whose Service exists, and when it was last known to be the job's own (monotonic clock)."""
    waits: dict[str, Wait] = field(default_factory=dict)
    changes: dict[str, dict[str, int]] = field(default_factory=dict)
    """Consecutive requests, by path, that found the object changed or the disruption budget not computed yet."""
    times: dict[str, PodTimes] = field(default_factory=dict)
    """Times of a status that waits to be written."""
    next_event_slots: dict[str, datetime] = field(default_factory=dict)
    """Time of the next free slot for a Pending event, by namespace."""

    def rejections_of(self, *, staging: bool) -> dict[str, Rejection]:
        """Return the last rejections by job. Those of staging pods are separate, since they delay no other pod."""
        return self.staging_rejections if staging else self.rejections

    def reject(
        self, key: str, pod: str, reason: str, message: str, settings: Settings, now: datetime, *, staging: bool = False
    ) -> Rejection:
        """Record the rejection of a pod; the pause doubles with each rejection of the same pod."""
        rejections = self.rejections_of(staging=staging)
        before = rejections.get(key)
        known = before if before is not None and before.pod == pod else None
        rejection = rejections[key] = _repeated(known, pod, reason, message, settings, now)
        return rejection

    def is_transient(self, key: str, settings: Settings, now: datetime) -> bool:
        """Return whether transient rejections of the job are still within `Settings.forbidden_patience_seconds`."""
        since = self.forbidden.setdefault(key, now)
        return now - since < timedelta(seconds=settings.forbidden_patience_seconds)

    def refuse(
        self, key: str, pod: str, message: str, settings: Settings, now: datetime, reason: str = "DisruptionBudget"
    ) -> int:
        """Record that the eviction of a pod was refused; the pause doubles with each refusal. Returns their number."""
        refusals = self.refusals.setdefault(key, {})
        refusal = refusals[pod] = _repeated(refusals.get(pod), pod, reason, message, settings, now)
        return refusal.count

    def keep_refusals(self, key: str, pods: Collection[str]) -> None:
        """Forget refused evictions of all other pods of the job."""
        kept = {pod: refusal for pod, refusal in self.refusals.pop(key, {}).items() if pod in pods}
        if kept:
            self.refusals[key] = kept

    def count_change(self, key: str, path: str) -> int:
        """Count a request that has to be repeated, and return how many there were in a row."""
        counts = self.changes.setdefault(key, {})
        counts[path] = counts.get(path, 0) + 1
        return counts[path]

    def forget_changes(self, key: str, path: str) -> None:
        """Forget these requests after one that was carried out, or that found the object gone."""
        counts = self.changes.get(key)
        if counts is not None and counts.pop(path, None) is not None and not counts:
            del self.changes[key]

    def keep_reported(self, key: str, pods: Collection[str]) -> None:
        """Forget the reported ends of pods that are not among these UIDs."""
        kept = self.reported.pop(key, set()).intersection(pods)
        if kept:
            self.reported[key] = kept

    def event_slot(self, key: str, settings: Settings, now: datetime) -> float:
        """Return the seconds until the slot of the job's next Pending event, and reserve one if needed.

        The more namespaces have reserved slots, the further apart are those of each. Those of one namespace never delay
        those of another, since a tenant may create and delete jobs without end.
        """
        wait = self.waits.get(key, Wait())
        if not wait.has_event_slot:
            namespace = key.partition("/")[0]
            taken = {one: at for one, at in self.next_event_slots.items() if at > now}
            free = taken.setdefault(namespace, now)
            taken[namespace] = free + timedelta(seconds=len(taken) / settings.wait_events_per_second)
            self.next_event_slots = taken
            turn = max(free, now + timedelta(seconds=settings.wait_settle_seconds))
            wait = self.waits[key] = replace(wait, not_before=turn, has_event_slot=True)
        return max(0.0, (wait.not_before - now).total_seconds()) if wait.not_before is not None else 0.0

    def record_event(self, key: str, sentence: str, now: datetime) -> None:
        """Record a Pending event of the job."""
        self.waits[key] = Wait(sentence, now + timedelta(seconds=SPACING_SECONDS))

    def has_workers(self, key: str) -> None:
        """Record that the job does not wait, so that the next wait causes a new event."""
        wait = self.waits.get(key)
        if wait is not None:
            self.waits[key] = replace(wait, last_message="", has_event_slot=False)

    def note_job(self, key: str, uid: str) -> None:
        """Forget the results of an earlier job of this name. Its pods may still stop, so that `forget` came too late.

        The generation does not tell the two apart: that of both begins at 1.
        """
        if self.uids.get(key, uid) != uid:
            self._forget_results(key)
        self.uids[key] = uid

    def forget(self, key: str) -> None:
        """Forget a job."""
        self.jobs.drop(key)
        self.uids.pop(key, None)
        self._forget_results(key)

    def _forget_results(self, key: str) -> None:
        self.verdicts.pop(key, None)
        self.rejections.pop(key, None)
        self.staging_rejections.pop(key, None)
        self.forbidden.pop(key, None)
        self.refusals.pop(key, None)
        self.reported.pop(key, None)
        self.services.pop(key, None)
        self.waits.pop(key, None)
        self.changes.pop(key, None)
        self.times.pop(key, None)


def _repeated(
    before: Rejection | None, pod: str, reason: str, message: str, settings: Settings, now: datetime
) -> Rejection:
    count = before.count + 1 if before is not None else 1
    pause = min(
        settings.rejection_backoff_seconds * 2.0 ** min(count - 1, 32), settings.longest_rejection_backoff_seconds
    )
    return Rejection(pod, reason, message, now + timedelta(seconds=pause), count)
