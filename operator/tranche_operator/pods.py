"""Manifests of worker and parameter server pods and of the Service that names them: the template, and what we add.

The variables of `environments` win over the template's own of the same name. Everything else of the template stays: the
CRD's rules keep out of it what the plan decides (names, node, scheduler, gates, priority).
"""

import copy
from collections.abc import Callable, Mapping
from typing import Any

from tranche.kube import names
from tranche.kube.resources import API_VERSION, PlannedParameterServer, PlannedWindow, TrainingJob
from tranche_operator import affinities, environments
from tranche_operator.settings import Settings

Manifest = dict[str, Any]

CHECKPOINT_VOLUME = "tranche-checkpoint"
GANG_GATE = "tranche.dev/gang"
"""Scheduling gate of a gang's pods, removed when all of them exist: no member takes a node before."""
_CHECKED_NAME = "check"


def worker_pod(
    job: TrainingJob, window: PlannedWindow, settings: Settings, site_labels: Mapping[str, str] | None = None
) -> Manifest:
    """The pod of a window.

    Args:
        job: The job, with the plan that holds the window and the progress to resume from.
        window: What the pod trains, and where.
        settings: Where checkpoints are mounted.
        site_labels: Labels of the site's nodes, used where the plan names no node (unlimited site).
    """
    variables = environments.worker_environment(job, window, settings.checkpoint_directory)
    pod = _pod(job, names.ROLE_WORKER, window, job.spec.workers.template, variables, settings)
    _place(pod["spec"], window, site_labels)
    return pod


def server_pod(
    job: TrainingJob, server: PlannedParameterServer, settings: Settings, site_labels: Mapping[str, str] | None = None
) -> Manifest:
    """The pod of a parameter server; arguments as for `worker_pod`.

    Raises:
        ValueError: if the job has no parameter servers.
    """
    if job.spec.parameter_servers is None:
        raise ValueError(f"{job.key} is planned with parameter servers and has none")
    variables = environments.server_environment(job, server, settings.checkpoint_directory)
    pod = _pod(job, names.ROLE_SERVER, server, job.spec.parameter_servers.template, variables, settings)
    _place(pod["spec"], server, site_labels)
    return pod


def checked_pods(job: TrainingJob, settings: Settings) -> tuple[Manifest, ...]:
    """One pod of each role as it would be created, for a dry run: is the template acceptable?"""
    pods = [worker_pod(job, PlannedWindow(index=0, attempt=0, site="", fallbacks=[], chunks=[0]), settings)]
    if job.spec.parameter_servers is not None:
        pods.append(server_pod(job, PlannedParameterServer(index=0, attempt=0, site="", fallbacks=[]), settings))
    for pod in pods:
        pod["metadata"]["name"] = f"{pod['spec']['hostname']}-{_CHECKED_NAME}"
    return tuple(pods)


def is_gated(job: TrainingJob) -> bool:
    """Whether the job's pods wait for each other before any of them takes a node."""
    return job.spec.data is None and (job.spec.workers.max_replicas > 1 or job.spec.parameter_servers is not None)


def service(job: TrainingJob) -> Manifest:
    """The headless Service under which the job's pods find each other, also before they are ready."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": job.metadata.name,
            "namespace": job.metadata.namespace,
            "labels": _common_labels(job),
            "ownerReferences": [_owner(job)],
        },
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {names.LABEL_JOB: job.metadata.name},
        },
    }


def _pod(
    job: TrainingJob,
    role: str,
    entry: PlannedWindow | PlannedParameterServer,
    template: Mapping[str, Any],
    variables: Mapping[str, str],
    settings: Settings,
) -> Manifest:
    template = copy.deepcopy(dict(template))
    given = template.get("metadata") or {}
    plan = job.status.plan
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": names.pod_name(job.metadata.name, role, entry.index, entry.attempt),
            "namespace": job.metadata.namespace,
            "labels": {
                **(given.get("labels") or {}),
                **_common_labels(job),
                "app.kubernetes.io/component": role,
                names.LABEL_ROLE: role,
                names.LABEL_INDEX: str(entry.index),
                names.LABEL_ATTEMPT: str(entry.attempt),
            },
            "annotations": {
                **(given.get("annotations") or {}),
                **({names.ANNOTATION_PLAN: f"{plan.term}.{plan.revision}"} if plan else {}),
            },
            "ownerReferences": [_owner(job)],
            "finalizers": [*(given.get("finalizers") or []), names.FINALIZER_LEDGER],
        },
        "spec": _spec(job, role, entry.index, template.get("spec") or {}, variables, settings),
    }


def _spec(
    job: TrainingJob,
    role: str,
    index: int,
    spec: Manifest,
    variables: Mapping[str, str],
    settings: Settings,
) -> Manifest:
    spec |= {
        "hostname": environments.host_name(job, role, index),
        "subdomain": job.metadata.name,
        "schedulerName": names.SCHEDULER_NAME,
        "priorityClassName": job.spec.priority_class_name,
        "restartPolicy": "Never",
    }
    if is_gated(job):
        spec["schedulingGates"] = [{"name": GANG_GATE}]
    volume = job.spec.checkpoint.volume if job.spec.checkpoint else None
    if volume is not None:
        spec["volumes"] = [*(spec.get("volumes") or []), {**copy.deepcopy(volume), "name": CHECKPOINT_VOLUME}]
    _for_each_container(spec, lambda container: _equip(container, variables, volume is not None, settings))
    return spec


def _for_each_container(spec: Manifest, change: Callable[[Manifest], None]) -> None:
    for kind in ("initContainers", "containers"):
        for container in spec.get(kind) or []:
            change(container)


def _equip(container: Manifest, variables: Mapping[str, str], mounted: bool, settings: Settings) -> None:
    """Give a container our variables (first, so that its own may refer to them) and the checkpoint volume.

    A container that mounts something of its own at the checkpoint directory keeps that.
    """
    own = [variable for variable in container.get("env") or [] if variable.get("name") not in variables]
    container["env"] = [{"name": name, "value": value} for name, value in variables.items()] + own
    mounts = container.get("volumeMounts") or []
    directory = settings.checkpoint_directory
    if mounted and not any(str(mount.get("mountPath", "")).rstrip("/") == directory for mount in mounts):
        container["volumeMounts"] = [*mounts, {"name": CHECKPOINT_VOLUME, "mountPath": directory}]


def _place(
    spec: Manifest, entry: PlannedWindow | PlannedParameterServer, site_labels: Mapping[str, str] | None
) -> None:
    if entry.node is not None:
        affinities.narrow(spec, affinities.node_terms([entry.node, *entry.fallbacks]))
    elif site_labels:
        affinities.narrow(spec, affinities.label_terms(site_labels))


def _common_labels(job: TrainingJob) -> dict[str, str]:
    return {
        names.LABEL_JOB: job.metadata.name,
        "app.kubernetes.io/name": "tranche",
        "app.kubernetes.io/managed-by": "tranche",
    }


def _owner(job: TrainingJob) -> Manifest:
    return {
        "apiVersion": API_VERSION,
        "kind": "TrainingJob",
        "name": job.metadata.name,
        "uid": job.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
