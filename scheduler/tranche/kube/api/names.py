"""Names shared by operator, planner and extender: labels, annotations, finalizer, field managers, pod names."""

from tranche.model.tenancy import PRIORITY_CLASSES

SCHEDULER_NAME = "tranche"
SCHEDULER_MANAGER = "tranche-scheduler"
REJECTION_MANAGER = "tranche-scheduler-rejections"
"""Applies the condition Planned alone, to a job whose plan cannot be read or written."""
OPERATOR_MANAGER = "tranche-operator"

LABEL_JOB = "tranche.dev/job"
LABEL_ROLE = "tranche.dev/role"
LABEL_INDEX = "tranche.dev/index"
LABEL_ATTEMPT = "tranche.dev/attempt"
LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"
"""Label of all objects of a job; a pod whose host name a later attempt has taken over has lost it."""
MANAGED_BY = "tranche"
ROLE_WORKER = "worker"
ROLE_SERVER = "ps"
ROLE_CHIEF = "chief"
ROLE_STAGING = "staging"
PLANNED_ROLES = frozenset({ROLE_WORKER, ROLE_SERVER, ROLE_CHIEF})
"""Roles of the pods that a plan assigns to nodes."""

ANNOTATION_PLAN = "tranche.dev/plan"
"""``<term>.<revision>`` of the plan that the pod was created from."""
ANNOTATION_STEP_SECONDS = "tranche.dev/step-seconds"
"""Declared time of a mini-batch in seconds; simulated nodes train at this speed."""
ANNOTATION_REPORT_CA = "tranche.dev/report-ca"
"""CA certificates of the report API, PEM, of a pod that reports or requests chunks."""
ANNOTATION_TRAINING_CONTAINER = "tranche.dev/training-container"
"""Name of the container that trains; admission may add others before it. Written by the operator."""
ANNOTATION_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
"""Name of the container that the user declares as the main one of a template."""
ANNOTATION_REQUESTS = "tranche.dev/template-requests"
"""Digest of the requests of the template from which the pod was created (`requests_digest`)."""
ANNOTATION_TEMPLATE = "tranche.dev/template"
"""Digest of the template from which the pod was created, with what the job adds to it (`template_digest`)."""
GANG_GATE = "tranche.dev/gang"
"""Scheduling gate of the pods of a gang that was refused a pod. It is removed when all of them exist."""
FINALIZER_LEDGER = "tranche.dev/ledger"
"""Finalizer of a pod until its end is recorded in status.progress."""
FINALIZER_ORPHAN = "orphan"
"""Finalizer of an object that is deleted without its dependents, until the garbage collector has released these."""
REPORT_AUDIENCE = "tranche.dev"
"""Audience of the service-account tokens for progress reports; other services reject these tokens."""

CONDITION_PLANNED = "Planned"
CONDITION_CLAIMS_LIMITED = "ClaimsLimited"
CONDITION_PRIORITY_IGNORED = "PriorityIgnored"
CONDITION_INVALID_TEMPLATE = "InvalidTemplate"
REASON_NO_DRY_RUN = "DryRunUnsupported"
"""Reason of condition InvalidTemplate if a webhook does not support dry runs."""
CONDITION_PODS_REJECTED = "PodsRejected"
CONDITION_PODS_NOT_STARTING = "PodsNotStarting"
CONDITION_EVICTIONS_REFUSED = "EvictionsRefused"
CONDITION_PODS_DO_NOT_STOP = "PodsDoNotStop"
CONDITION_STAGING_FAILED = "StagingFailed"
CONDITION_UNPLACED = "PodsUnplaced"
CONDITION_COMPLETE = "Complete"
CONDITION_FAILED = "Failed"
CONDITION_SUSPENDED = "Suspended"
CONDITION_RUNNING = "Running"

GPU_RESOURCE = "nvidia.com/gpu"
"""Default resource name of GPUs."""
GpuResources = tuple[str, ...]
"""Resource names of the GPUs of an installation, in order; ``("cpu",)`` plans whole cores."""
GPU_RESOURCES: GpuResources = (GPU_RESOURCE,)
PRIORITIES = PRIORITY_CLASSES
"""Values of the PriorityClasses of the strict tiers."""


def pod_name(job: str, role: str, index: int, attempt: int) -> str:
    """Return the name of a planned pod. It is deterministic, so that a second creation fails and is harmless."""
    return f"{host_name(job, role, index)}-{attempt}"


def host_name(job: str, role: str, index: int) -> str:
    """Return the host name of a planned pod; it is the same for every attempt."""
    return f"{job}-{role}-{index}"


def role_of(job: str, pod: str) -> str:
    """Return the role of a job's pod, which its name contains (`pod_name`, `staging_pod_name`)."""
    return pod.removeprefix(f"{job}-").partition("-")[0]


def staging_pod_name(job: str, site: str, attempt: int) -> str:
    """Return the name of the pod that copies data to a site."""
    return f"{job}-{ROLE_STAGING}-{site}-{attempt}"
