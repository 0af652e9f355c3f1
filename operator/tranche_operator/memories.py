"""What the process remembers of jobs between two reconciles; losing it costs a repeated request, nothing else."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from tranche.kube.resources import SiteSpec
from tranche_operator.events import QUIET_SECONDS
from tranche_operator.observations import Rejection, TemplateVerdict, Wait
from tranche_operator.settings import Settings
from tranche_operator.stores import PodCache


@dataclass(slots=True)
class ReconcilerCache:
    """By job key, but for sites."""

    pods: PodCache = field(default_factory=PodCache)
    verdicts: dict[str, TemplateVerdict] = field(default_factory=dict)
    rejections: dict[str, Rejection] = field(default_factory=dict)
    staging_rejections: dict[str, Rejection] = field(default_factory=dict)
    forbidden: dict[str, datetime] = field(default_factory=dict)
    """Since when the job's pods are refused for a reason that may pass."""
    refusals: dict[str, dict[str, Rejection]] = field(default_factory=dict)
    """Evictions that a disruption budget refused, by pod."""
    sites: dict[str, tuple[SiteSpec | None, float]] = field(default_factory=dict)
    """Sites by their names, None: not declared, and until when that is believed on the monotonic clock."""
    services: dict[str, tuple[str, float]] = field(default_factory=dict)
    """UID of the job for which a Service was seen or met, and since when, on the monotonic clock, it is its own."""
    waits: dict[str, Wait] = field(default_factory=dict)
    unwritten: dict[str, datetime] = field(default_factory=dict)
    """Until when a status that need not be written at once may wait."""
    next_event_slot: datetime | None = None
    """When the next event of a waiting job has its place."""

    def rejections_of(self, *, staging: bool) -> dict[str, Rejection]:
        """The last refusals by job; one of a staging pod keeps no other pod waiting."""
        return self.staging_rejections if staging else self.rejections

    def reject(
        self, key: str, pod: str, reason: str, message: str, settings: Settings, now: datetime, *, staging: bool = False
    ) -> Rejection:
        """Note that a pod was refused; the pause doubles with each refusal of the same pod."""
        rejections = self.rejections_of(staging=staging)
        before = rejections.get(key)
        known = before if before is not None and before.pod == pod else None
        rejection = rejections[key] = _again(known, pod, reason, message, settings, now)
        return rejection

    def is_transient(self, key: str, settings: Settings, now: datetime) -> bool:
        """Whether a refusal that may pass by itself is not yet to be told."""
        since = self.forbidden.setdefault(key, now)
        return now - since < timedelta(seconds=settings.forbidden_patience_seconds)

    def refuse(self, key: str, pod: str, message: str, settings: Settings, now: datetime) -> None:
        """Note that a pod could not be evicted; the pause doubles with each time."""
        refusals = self.refusals.setdefault(key, {})
        refusals[pod] = _again(refusals.get(pod), pod, "DisruptionBudget", message, settings, now)

    def pause_of(self, key: str, settings: Settings, now: datetime) -> float:
        """Seconds until a status that may change again soon is written; 0.0 if it is time."""
        due = self.unwritten.setdefault(key, now + timedelta(seconds=settings.status_settle_seconds))
        return max(0.0, (due - now).total_seconds())

    def keep_refusals(self, key: str, pods: Collection[str]) -> None:
        """No other pods of the job are to be evicted (any more)."""
        kept = {pod: refusal for pod, refusal in self.refusals.pop(key, {}).items() if pod in pods}
        if kept:
            self.refusals[key] = kept

    def event_slot(self, key: str, settings: Settings, now: datetime) -> float:
        """Seconds until it is the turn of a job that waits to tell why; 0.0 if it is now."""
        wait = self.waits.get(key, Wait())
        if not wait.has_event_slot:
            free = max(now, self.next_event_slot or now)
            self.next_event_slot = free + timedelta(seconds=1 / settings.wait_events_per_second)
            turn = max(free, now + timedelta(seconds=settings.wait_settle_seconds))
            wait = self.waits[key] = replace(wait, not_before=turn, has_event_slot=True)
        return max(0.0, (wait.not_before - now).total_seconds()) if wait.not_before is not None else 0.0

    def record_event(self, key: str, sentence: str, now: datetime) -> None:
        """The job's users have been told."""
        self.waits[key] = Wait(sentence, now + timedelta(seconds=QUIET_SECONDS))

    def has_workers(self, key: str) -> None:
        """The job does not wait: when it does again, that is news."""
        wait = self.waits.get(key)
        if wait is not None:
            self.waits[key] = replace(wait, last_message="", has_event_slot=False)

    def forget(self, key: str) -> None:
        """The job is gone."""
        self.verdicts.pop(key, None)
        self.rejections.pop(key, None)
        self.staging_rejections.pop(key, None)
        self.forbidden.pop(key, None)
        self.refusals.pop(key, None)
        self.services.pop(key, None)
        self.waits.pop(key, None)
        self.unwritten.pop(key, None)


def _again(
    before: Rejection | None, pod: str, reason: str, message: str, settings: Settings, now: datetime
) -> Rejection:
    count = before.count + 1 if before is not None else 1
    pause = min(
        settings.rejection_backoff_seconds * 2.0 ** min(count - 1, 32), settings.longest_rejection_backoff_seconds
    )
    return Rejection(pod, reason, message, now + timedelta(seconds=pause), count)
