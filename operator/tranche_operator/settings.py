"""What can be set of the operator, with the reasons for the defaults."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """Times are in seconds."""

    checkpoint_directory: str = "/var/lib/tranche/checkpoint"
    """Where a job's checkpoint volume is mounted in every container; TRANCHE_CHECKPOINT_DIR."""
    report_url: str = ""
    """Where pods report their progress, TRANCHE_API, and ask for their next chunks, TRANCHE_NEXT; empty: they are given
    neither address nor token."""
    token_seconds: int = 3600
    """How long a pod's token of the report API is valid; the kubelet renews it after four fifths of that."""
    kept_pods: int = 2
    """Finished and counted pods that a running job keeps for inspection."""
    ledger_patience: float = 60.0
    """How long the planner may count the last pods of a finished job, and its workers may end by themselves, before
    finalizers are removed and pods are deleted without waiting any longer."""
    rejection_backoff: float = 5.0
    """First pause after the API server refused a pod; doubles with every refusal."""
    rejection_backoff_limit: float = 60.0
    """Longest such pause: a raised quota shows within a minute."""
    forbidden_patience: float = 30.0
    """How long a refusal is borne that may be over by itself, as those of an API server that has just started."""
    resync_interval: float = 60.0
    """Between two looks at everything; what the watches missed is found then."""
    wait_events_per_second: float = 10.0
    """Events of all jobs that wait, which tell what for: as many as the planner writes such sentences at most. When
    thousands begin to wait at once, or the operator starts again, the last is told as many seconds later."""
    wait_settle: float = 2.0
    """How long a job must have waited for something before that is told: most jobs that start at once never do."""
    status_settle: float = 0.5
    """How long a phase Waiting or Starting, or the numbers of pods, must have lasted before they are written again."""
    leisure: float = 1.0
    """Before pods that are over and counted are let go and deleted: what takes their place has precedence."""
    workers: int = 16
    """Jobs reconciled at the same time; each has one request under way at most, except while it creates pods."""
    settle: float = 0.02
    """Pause between an event and the reconcile: a burst of events of one job becomes one reconcile."""
