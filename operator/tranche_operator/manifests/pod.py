"""Manifests of the job's pods and of its headless Service: the user's template with the operator's additions.

The variables of `environments` override variables of the template with the same name. The rest of the template is kept:
the CRD's rules exclude the fields that the plan determines (names, node, scheduler, gates, priority).
"""

import copy
from collections.abc import Callable, Mapping
from math import ceil
from typing import Any

from tranche.kube.api import names
from tranche.kube.api.resources import (
    API_VERSION,
    PlannedChief,
    PlannedParameterServer,
    PlannedStaging,
    PlannedWindow,
    SiteSpec,
    TrainingJob,
)
from tranche.kube.convert.attempt_history import ended_attempts
from tranche.kube.convert.pod_identity import may_report_progress, may_request_chunks
from tranche.kube.convert.training_container import pod_source, template_annotations
from tranche.kube.convert.trainingjob import declared_step_seconds
from tranche.model.attempt_record import may_be_of_node
from tranche.model.quantity import parse_duration
from tranche_operator.manifests import checkpoint_volume, environment, node_affinity
from tranche_operator.settings import Settings

Manifest = dict[str, Any]

TOKEN_VOLUME = "tranche-token"  # noqa: S105 - a name
BANDWIDTH_ANNOTATIONS = ("kubernetes.io/ingress-bandwidth", "kubernetes.io/egress-bandwidth")
SILENCE_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_CHECKED_NAME = "check"


def worker_pod(job: TrainingJob, window: PlannedWindow, settings: Settings, site: SiteSpec | None = None) -> Manifest:
    """Return the manifest of a window's pod.

    Args:
        job: The job, with the plan that contains the window and the progress from which to resume.
        window: Chunks and place of the pod.
        settings: The operator's settings.
        site: Site of the window: for its disconnect tolerance, and for its node labels if the plan names no node.
    """
    variables = environment.worker_environment(job, window, settings.checkpoint_directory)
    pod = _pod(job, names.ROLE_WORKER, window, job.spec.workers.template, variables, settings)
    _place(pod["spec"], window, site, job)
    return pod


def server_pod(
    job: TrainingJob, server: PlannedParameterServer, settings: Settings, site: SiteSpec | None = None
) -> Manifest:
    """Return the manifest of a parameter server; arguments as for `worker_pod`.

    Raises:
        ValueError: if the job has no parameter servers.
    """
    if job.spec.parameter_servers is None:
        raise ValueError(f"{job.key}: the plan has a parameter server, and the job has no spec.parameterServers")
    variables = environment.server_environment(job, server, settings.checkpoint_directory)
    pod = _pod(job, names.ROLE_SERVER, server, job.spec.parameter_servers.template, variables, settings)
    _place(pod["spec"], server, site, job)
    return pod


def chief_pod(job: TrainingJob, chief: PlannedChief, settings: Settings, site: SiteSpec | None = None) -> Manifest:
    """Return the manifest of a gang's chief; arguments as for `worker_pod`.

    Raises:
        ValueError: if the job has no chief.
    """
    if job.spec.chief is None:
        raise ValueError(f"{job.key}: the plan has a chief, and the job has no spec.chief")
    variables = environment.chief_environment(job, chief, settings.checkpoint_directory)
    pod = _pod(job, names.ROLE_CHIEF, chief, job.spec.chief.template, variables, settings)
    _place(pod["spec"], chief, site, job)
    return pod


def staging_pod(
    job: TrainingJob, staging: PlannedStaging, settings: Settings, site: SiteSpec | None = None
) -> Manifest:
    """Return the manifest of a staging pod, which copies data to a site; arguments as for `worker_pod`.

    Raises:
        ValueError: if the job has no staging template.
    """
    data, attempt = job.spec.data, staging.attempt or 0
    if data is None or data.staging is None:
        raise ValueError(f"{job.key}: the plan has a staging pod, and the job has no spec.data.staging")
    variables = environment.staging_environment(job, staging, settings.checkpoint_directory)
    anywhere = PlannedWindow(index=0, attempt=attempt, site=staging.site, chunks=[])
    pod = _pod(job, names.ROLE_STAGING, anywhere, data.staging.template, variables, settings)
    pod["metadata"]["name"] = names.staging_pod_name(job.metadata.name, staging.site, attempt)
    del pod["spec"]["hostname"], pod["spec"]["subdomain"]  # no pod connects to it
    _place(pod["spec"], anywhere, site)
    return pod


def checked_pods(job: TrainingJob, settings: Settings) -> tuple[Manifest, ...]:
    """Return one pod of each role as it would be created, for the dry run of the templates."""
    pods = [worker_pod(job, PlannedWindow(index=0, attempt=0, site="", fallbacks=[], chunks=[0]), settings)]
    if job.spec.parameter_servers is not None:
        pods.append(server_pod(job, PlannedParameterServer(index=0, attempt=0, site="", fallbacks=[]), settings))
    if job.spec.chief is not None:
        pods.append(chief_pod(job, PlannedChief(index=0, attempt=0, site="", fallbacks=[]), settings))
    for pod in pods:
        pod["metadata"]["name"] = f"{pod['spec']['hostname']}-{_CHECKED_NAME}"
    if job.spec.data is not None and job.spec.data.staging is not None:
        pods.append(staging_pod(job, PlannedStaging(site=_CHECKED_NAME), settings))
    return tuple(pods)


def checked_roles(job: TrainingJob) -> frozenset[str]:
    """Return the roles of `checked_pods`."""
    spec = job.spec
    has = {
        names.ROLE_SERVER: spec.parameter_servers is not None,
        names.ROLE_CHIEF: spec.chief is not None,
        names.ROLE_STAGING: spec.data is not None and spec.data.staging is not None,
    }
    return frozenset({names.ROLE_WORKER, *(role for role, present in has.items() if present)})


def with_gate(pod: Manifest) -> Manifest:
    """Return the pod with the scheduling gate of a gang."""
    return {**pod, "spec": {**pod["spec"], "schedulingGates": [{"name": names.GANG_GATE}]}}


def service(job: TrainingJob) -> Manifest:
    """Return the headless Service that resolves the job's pods, also before they are ready."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": job.metadata.name,
            "namespace": job.metadata.namespace,
            "labels": {"app.kubernetes.io/name": "tranche", **_selected_labels(job)},
            "ownerReferences": [_owner(job)],
        },
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {**former_selector(job), names.LABEL_MANAGED_BY: names.MANAGED_BY},
        },
    }


def former_selector(job: TrainingJob) -> dict[str, str]:
    """Return the selector of Services that earlier releases created: all pods of the job, also superseded ones."""
    return {names.LABEL_JOB: job.metadata.name}


def _pod(
    job: TrainingJob,
    role: str,
    entry: PlannedWindow | PlannedParameterServer,
    template: Mapping[str, Any],
    variables: Mapping[str, str],
    settings: Settings,
) -> Manifest:
    template = _copied(dict(template))
    given = template.get("metadata") or {}
    plan = job.status.plan
    annotations = template_annotations(pod_source(job.spec, template))
    spec = template.get("spec") or {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": names.pod_name(job.metadata.name, role, entry.index, entry.attempt),
            "namespace": job.metadata.namespace,
            "labels": {
                "app.kubernetes.io/name": "tranche",
                "app.kubernetes.io/component": role,
                **(given.get("labels") or {}),  # selectors of the user may need other values of the two above
                **_selected_labels(job),
                names.LABEL_ROLE: role,
                names.LABEL_INDEX: str(entry.index),
                names.LABEL_ATTEMPT: str(entry.attempt),
            },
            "annotations": {
                **(given.get("annotations") or {}),
                **annotations,
                **({names.ANNOTATION_PLAN: f"{plan.term}.{plan.revision}"} if plan else {}),
                **_report_annotations(job, role, entry.index, settings),
                **_speed_annotations(job, role),
                **_bandwidth_annotations(job, role),
            },
            "ownerReferences": [_owner(job)],
            "finalizers": [*(given.get("finalizers") or []), names.FINALIZER_LEDGER],
        },
        "spec": _spec(
            job, role, entry.index, spec, variables, settings, annotations.get(names.ANNOTATION_TRAINING_CONTAINER)
        ),
    }


def _spec(
    job: TrainingJob,
    role: str,
    index: int,
    spec: Manifest,
    variables: Mapping[str, str],
    settings: Settings,
    training: str | None,
) -> Manifest:
    """Return the spec of a pod; `training` is the name of its training container."""
    volumes: list[Manifest] = []
    mounts: list[Manifest] = []
    does = {"reports": may_report_progress(job, role, index), "requests_chunks": may_request_chunks(job, role)}
    if settings.report_url and any(does.values()):
        has_ca = settings.report_ca is not None
        variables = {**variables, **environment.report_environment(settings.report_url, **does, has_ca=has_ca)}
        volumes.append(_token_volume(settings))
        mounts.append({"name": TOKEN_VOLUME, "mountPath": environment.TOKEN_DIRECTORY, "readOnly": True})
    spec |= {
        "hostname": names.host_name(job.metadata.name, role, index),
        "subdomain": job.metadata.name,
        "schedulerName": names.SCHEDULER_NAME,
        "priorityClassName": job.priority_class_name,
        "restartPolicy": "Never",
    }
    if spec.get("terminationGracePeriodSeconds") == 0:
        spec["terminationGracePeriodSeconds"] = 1  # else any deletion would free its GPU while its containers still run
    if spec.get("hostNetwork"):
        spec.setdefault("dnsPolicy", "ClusterFirstWithHostNet")  # else the names of Services do not resolve in it
    volume = job.spec.checkpoint.volume if job.spec.checkpoint else None
    if volume is not None:
        volumes.append({**copy.deepcopy(volume), "name": checkpoint_volume.CHECKPOINT_VOLUME})
        mounts += checkpoint_volume.mounts(job, settings.checkpoint_directory)
    if (earlier := checkpoint_volume.resume_path(job, settings.checkpoint_directory)) is not None:
        variables = {**variables, "TRANCHE_RESUME_DIR": earlier}
    if volumes:
        spec["volumes"] = [*(spec.get("volumes") or []), *volumes]
    _for_each_container(spec, lambda container: _add_variables_and_mounts(container, variables, mounts))
    _keep_last_log(spec, training)
    return spec


def _keep_last_log(spec: Manifest, training: str | None) -> None:
    """Let the kubelet report the last log lines of a failed training or init container that has written no message."""
    trains = [one for one in spec.get("containers") or [] if one.get("name") == training]
    for container in [*trains, *(spec.get("initContainers") or [])]:
        container.setdefault("terminationMessagePolicy", "FallbackToLogsOnError")


def _copied(value: Any) -> Any:
    """Copy a JSON value, which takes a fifth of the time of `copy.deepcopy`."""
    if isinstance(value, dict):
        return {key: _copied(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_copied(part) for part in value]
    return value


def _report_annotations(job: TrainingJob, role: str, index: int, settings: Settings) -> dict[str, str]:
    """Return the CA certificates for a pod that connects to the report API."""
    connects = may_report_progress(job, role, index) or may_request_chunks(job, role)
    if settings.report_ca is None or not (settings.report_url and connects):
        return {}
    return {names.ANNOTATION_REPORT_CA: settings.report_ca.pem}


def _speed_annotations(job: TrainingJob, role: str) -> dict[str, str]:
    """Return the declared time of a mini-batch for a pod that trains."""
    trains = role in (names.ROLE_WORKER, names.ROLE_CHIEF)
    return {names.ANNOTATION_STEP_SECONDS: f"{declared_step_seconds(job):g}"} if trains else {}


def _bandwidth_annotations(job: TrainingJob, role: str) -> dict[str, str]:
    """Return the limits that the CNI bandwidth plugin enforces on a pod, which count from the start of the pod."""
    asked = job.spec.communication
    if asked is None:
        return {}
    limit = {names.ROLE_SERVER: asked.server_bandwidth, names.ROLE_WORKER: asked.worker_bandwidth}.get(role)
    return {} if limit is None else dict.fromkeys(BANDWIDTH_ANNOTATIONS, str(limit))


def _for_each_container(spec: Manifest, change: Callable[[Manifest], None]) -> None:
    for kind in ("initContainers", "containers"):
        for container in spec.get(kind) or []:
            change(container)


def _token_volume(settings: Settings) -> Manifest:
    """Return the volume of a token that is valid only for the report API and this pod, and of the API's CA."""
    source = {
        "audience": names.REPORT_AUDIENCE,
        "expirationSeconds": settings.token_seconds,
        "path": environment.TOKEN_FILE,
    }
    sources: list[Manifest] = [{"serviceAccountToken": source}]
    if settings.report_ca is not None:
        field = {"fieldPath": f"metadata.annotations['{names.ANNOTATION_REPORT_CA}']"}
        sources.append({"downwardAPI": {"items": [{"path": environment.CA_FILE, "fieldRef": field}]}})
    return {"name": TOKEN_VOLUME, "projected": {"sources": sources}}


def _add_variables_and_mounts(container: Manifest, variables: Mapping[str, str], mounts: list[Manifest]) -> None:
    """Add our variables to a container, before its own so that these may refer to them, and our volume mounts.

    A mount of the container at the same path is kept instead of ours.
    """
    variables = {**variables, **environment.container_environment(container, variables)}
    own = [variable for variable in container.get("env") or [] if variable.get("name") not in variables]
    container["env"] = [{"name": name, "value": value} for name, value in variables.items()] + own
    present = container.get("volumeMounts") or []
    taken = {str(mount.get("mountPath", "")).rstrip("/") for mount in present}
    added = [mount for mount in mounts if mount["mountPath"] not in taken]
    if added:
        container["volumeMounts"] = [*present, *copy.deepcopy(added)]


def last_failed_node(job: TrainingJob) -> str:
    """Return the last node on which a pod of the job failed, was refused or did not start, and no later one ended.

    Returns "" without such a node.

    Pods at an unlimited site avoid it, as the planner avoids such nodes among those that it plans with. Otherwise
    kube-scheduler would choose a node with a broken GPU again and again, since it is always free. It is one node, since
    an autoscaler may have reached its limit, and the cause may be the job.
    """
    later: set[str] = set()
    for record in reversed(ended_attempts(job.status.progress)):
        if may_be_of_node(record.reason) and record.node not in later:
            return record.node
        later.add(record.node)
    return ""


def _place(
    spec: Manifest,
    entry: PlannedWindow | PlannedParameterServer,
    site: SiteSpec | None,
    job: TrainingJob | None = None,
) -> None:
    """Require the planned node or its fallbacks, and prefer the planned one.

    Without a planned node, require the labels of the site and another node than the last one where the job failed.
    """
    if entry.node is not None:
        node_affinity.restrict(spec, node_affinity.node_terms([entry.node, *entry.fallbacks]))
        if entry.fallbacks:
            node_affinity.prefer(spec, entry.node)
    elif site is not None:
        avoided = last_failed_node(job) if job is not None else ""
        node_affinity.restrict(spec, node_affinity.label_terms(site.node_selector, avoided))
    if site is not None:
        _tolerate_silence(spec, ceil(parse_duration(site.disconnect_tolerance)))


def _tolerate_silence(spec: Manifest, seconds: int) -> None:
    """Tolerate an unreachable node for `disconnectTolerance` of its site, unless the user's template tolerates it."""
    own = spec.get("tolerations") or []
    spec["tolerations"] = own + [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}
        for key in SILENCE_TAINTS
        if not any(one.get("key") in (None, "", key) and one.get("effect") in (None, "", "NoExecute") for one in own)
    ]


def _selected_labels(job: TrainingJob) -> dict[str, str]:
    """Return the labels by which tranche finds the objects of a job."""
    return {names.LABEL_JOB: job.metadata.name, names.LABEL_MANAGED_BY: names.MANAGED_BY}


def _owner(job: TrainingJob) -> Manifest:
    return {
        "apiVersion": API_VERSION,
        "kind": "TrainingJob",
        "name": job.metadata.name,
        "uid": job.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
