"""Settings of the operator, with the reasons for the defaults."""

from dataclasses import dataclass


@dataclass(slots=True)
class ReportCa:
    """CA certificates of the report API; the operator replaces them when others are published."""

    pem: str = ""
    """Certificates in PEM format; empty before they are published."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Constants of one operator process; durations are in seconds."""

    checkpoint_directory: str = "/var/lib/tranche/checkpoint"
    """Mount path of the job's checkpoint volume in every container; TRANCHE_CHECKPOINT_DIR."""
    report_url: str = ""
    """Address to which pods report their progress, TRANCHE_API, and which they ask for more chunks, TRANCHE_NEXT. If it
    is empty, pods get neither an address nor a token."""
    report_ca: ReportCa | None = None
    """CA certificates of that address, TRANCHE_CA; None for an address whose certificate the pods trust anyway, or
    without TLS."""
    report_ca_source: tuple[str, str] | None = None
    """Namespace and name of the ConfigMap with these certificates."""
    token_seconds: int = 3600
    """Validity of a pod's token for the report API; the kubelet renews it after 80 % of that time."""
    kept_succeeded: int = 2
    """Succeeded and counted pods that a running job keeps for inspection: a job may have thousands, one for each
    chunk."""
    kept_failed: int = 16
    """Failed and counted pods that it keeps: the logs of all members of most gangs."""
    ledger_patience_seconds: float = 60.0
    """Time that the planner has to count the last pods of a finished job, and that its workers have to end by
    themselves. After it, finalizers are removed and pods are deleted."""
    rejection_backoff_seconds: float = 5.0
    """First pause after the API server rejected a pod; doubles with every rejection."""
    longest_rejection_backoff_seconds: float = 60.0
    """Upper bound of that pause, so that a raised quota takes effect within a minute."""
    forbidden_patience_seconds: float = 30.0
    """Time during which transient rejections, such as those of an API server that has just started, are retried without
    an event."""
    check_backoff_seconds: float = 30.0
    """Pause after a dry run of the job's pods that did not admit them (they are not valid, a webhook or policy denied
    them, or a request failed); doubles with every such result."""
    longest_check_backoff_seconds: float = 300.0
    """Upper bound of that pause."""
    start_delay_seconds: float = 300.0
    """Time after which a bound pod whose containers do not start is reported even if the kubelet states no reason."""
    resync_interval_seconds: float = 60.0
    """Time between two resyncs, which find what the watches missed."""
    wait_events_per_second: float = 10.0
    """Rate of Pending events, which the namespaces share that have some to come when a job begins to wait; the planner
    writes explanations at the same rate. If thousands of jobs of a namespace begin to wait at once, or the operator
    restarts, its last event is delayed accordingly."""
    wait_settle_seconds: float = 2.0
    """Time that a job must wait for the same thing before a Pending event says so; most jobs that start at once never
    wait that long."""
    status_settle_seconds: float = 0.5
    """Time that a status that only reports must last before it is written (`tranche_operator.queue.status_queue`)."""
    deferral_seconds: float = 1.0
    """Delay before finished and counted pods are released and deleted, so that their successors are created first."""
    parallel_jobs: int = 20
    """Jobs reconciled at the same time, at most 16 of them of one namespace. Each has at most one request in flight,
    except while it creates pods."""
    busy_jobs: int = 32
    """Number of waiting jobs from which on new jobs wait for their plan before a dry run."""
    busy_check_seconds: float = 30.0
    """Longest such time. A plan without pods ends it: the planner stops other jobs for a job only after its dry run."""
    settle_seconds: float = 0.02
    """Pause between an event and the reconcile: a burst of events of one job becomes one reconcile."""
