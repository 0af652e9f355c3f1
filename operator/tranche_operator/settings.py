"""What can be set of the operator, with the reasons for the defaults."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """Times are in seconds."""

    checkpoint_directory: str = "/var/lib/tranche/checkpoint"
    """Where a job's checkpoint volume is mounted in every container; TRANCHE_CHECKPOINT_DIR."""
    kept_pods: int = 2
    """Finished and counted pods that a running job keeps for inspection."""
    ledger_patience: float = 60.0
    """How long the planner may count the last pods of a finished job, and its workers may end by themselves, before
    finalizers are removed and pods are deleted without waiting any longer."""
    rejection_backoff: float = 5.0
    """First pause after the API server refused a pod; doubles with every refusal."""
    rejection_backoff_limit: float = 60.0
    """Longest such pause: a raised quota shows within a minute."""
    resync_interval: float = 60.0
    """Between two looks at everything; what the watches missed is found then."""
    workers: int = 8
    """Jobs reconciled at the same time; each has one request under way at most, except while it creates pods."""
    settle: float = 0.02
    """Pause between an event and the reconcile: a burst of events of one job becomes one reconcile."""
