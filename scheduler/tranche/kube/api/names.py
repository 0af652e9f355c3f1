"""Names that operator, planner and extender agree on: labels, annotations, finalizer, managers, pod names."""

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
"""Of pods that a plan gives a node."""

ANNOTATION_PLAN = "tranche.dev/plan"
"""``<term>.<revision>`` of the plan that the pod was created from."""
FINALIZER_LEDGER = "tranche.dev/ledger"
"""Held until the pod's end has been counted in status.progress."""
REPORT_AUDIENCE = "tranche.dev"
"""Of the service-account tokens with which pods report; worth nothing elsewhere."""

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
"""Default of the setting."""
PRIORITIES = {"tranche-low": -10, "tranche-normal": -9, "tranche-high": -8}
"""Value of each strict tier's PriorityClass; below −10 a cluster autoscaler ignores pods."""


def pod_name(job: str, role: str, index: int, attempt: int) -> str:
    """Deterministic, so that creating twice is harmless."""
    return f"{job}-{role}-{index}-{attempt}"


def staging_pod_name(job: str, site: str, attempt: int) -> str:
    """Of the pod that brings data to a site."""
    return f"{job}-{ROLE_STAGING}-{site}-{attempt}"
