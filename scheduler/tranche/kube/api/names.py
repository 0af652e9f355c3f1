"""Names shared by operator, planner and extender: labels, annotations, finalizer, field managers, pod names."""

SCHEDULER_NAME = "tranche"
SCHEDULER_MANAGER = "tranche-scheduler"
OPERATOR_MANAGER = "tranche-operator"

LABEL_JOB = "tranche.dev/job"
LABEL_ROLE = "tranche.dev/role"
LABEL_INDEX = "tranche.dev/index"
LABEL_ATTEMPT = "tranche.dev/attempt"
ROLE_WORKER = "worker"
ROLE_SERVER = "ps"
ROLE_CHIEF = "chief"
ROLE_STAGING = "staging"
PLANNED_ROLES = frozenset({ROLE_WORKER, ROLE_SERVER, ROLE_CHIEF})
"""Roles of the pods that a plan assigns to nodes."""

ANNOTATION_PLAN = "tranche.dev/plan"
"""``<term>.<revision>`` of the plan that the pod was created from."""
FINALIZER_LEDGER = "tranche.dev/ledger"
"""Finalizer of a pod until its end is recorded in status.progress."""
REPORT_AUDIENCE = "tranche.dev"
"""Audience of the service-account tokens for progress reports; other services reject these tokens."""

CONDITION_PLANNED = "Planned"
CONDITION_INVALID_TEMPLATE = "InvalidTemplate"
CONDITION_PODS_REJECTED = "PodsRejected"
CONDITION_EVICTIONS_REFUSED = "EvictionsRefused"
CONDITION_STAGING_FAILED = "StagingFailed"
CONDITION_COMPLETE = "Complete"
CONDITION_FAILED = "Failed"
CONDITION_SUSPENDED = "Suspended"
CONDITION_RUNNING = "Running"

GPU_RESOURCE = "nvidia.com/gpu"
"""Default resource name of GPUs."""
PRIORITIES = {"tranche-low": -10, "tranche-normal": -9, "tranche-high": -8}
"""Values of the PriorityClasses of the strict tiers. The cluster autoscaler ignores pods with a value below −10."""


def pod_name(job: str, role: str, index: int, attempt: int) -> str:
    """Return the name of a planned pod. It is deterministic, so that a second creation fails and is harmless."""
    return f"{job}-{role}-{index}-{attempt}"


def staging_pod_name(job: str, site: str, attempt: int) -> str:
    """Return the name of the pod that copies data to a site."""
    return f"{job}-{ROLE_STAGING}-{site}-{attempt}"
