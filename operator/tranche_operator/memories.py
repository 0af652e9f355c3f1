"""What the process remembers of jobs between two reconciles; losing it costs a repeated request, nothing else."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from tranche_operator.observations import Rejection, TemplateVerdict
from tranche_operator.settings import Settings


@dataclass(slots=True)
class Memory:
    """By job key."""

    verdicts: dict[str, TemplateVerdict] = field(default_factory=dict)
    rejections: dict[str, Rejection] = field(default_factory=dict)
    services: dict[str, tuple[str, float]] = field(default_factory=dict)
    """UID of the job whose Service was seen, and when on the monotonic clock."""

    def reject(self, key: str, pod: str, reason: str, message: str, settings: Settings, now: datetime) -> Rejection:
        """Note that a pod was refused; the pause doubles with each refusal of the same pod."""
        before = self.rejections.get(key)
        count = before.count + 1 if before is not None and before.pod == pod else 1
        pause = min(settings.rejection_backoff * 2.0 ** min(count - 1, 32), settings.rejection_backoff_limit)
        rejection = Rejection(pod, reason, message, now + timedelta(seconds=pause), count)
        self.rejections[key] = rejection
        return rejection

    def forget(self, key: str) -> None:
        """The job is gone."""
        self.verdicts.pop(key, None)
        self.rejections.pop(key, None)
        self.services.pop(key, None)
