"""Environment variables of training containers: identity, chunks, and addresses of the other pods."""

import json
import zlib
from collections.abc import Mapping
from typing import Any

from tranche.kube.api.names import ROLE_CHIEF, ROLE_SERVER, ROLE_WORKER, host_name
from tranche.kube.api.resources import PlannedChief, PlannedParameterServer, PlannedStaging, PlannedWindow, TrainingJob
from tranche.model import parse_chunks
from tranche_operator.manifests.checkpoint_volume import DIRECTORY_VARIABLE

TENSORFLOW_PORT = 2222
"""Port on which workers and parameter servers listen; the default of TensorFlow's servers."""
TOKEN_DIRECTORY, TOKEN_FILE, CA_FILE = "/var/run/secrets/tranche.dev", "token", "ca.crt"
"""Directory of a pod's token for the report API and of the API's CA certificates, and their file names."""
TERMINATION_LOG, DEFAULT_TERMINATION_PATH = "TRANCHE_TERMINATION_LOG", "/dev/termination-log"
"""Variable of the path of a container's termination message, and Kubernetes' default of this path."""
GRACE_SECONDS, LEAST_GRACE_SECONDS = "TRANCHE_GRACE_SECONDS", 2
"""Variable of the seconds between SIGTERM and SIGKILL, and what kubelets leave of them after a hook at least."""
RENDEZVOUS_PORT = 29500
"""Port on which rank 0 of a gang listens; the default of torchrun."""
HOST_PORTS = range(20_000, 30_000)
"""Such ports of gangs on the networks of their nodes, below NodePorts and ephemeral ports: each job has one of its own,
so that the first members of two gangs can share a node."""


def address(job: TrainingJob, role: str, index: int) -> str:
    """Return the DNS name of a pod under the job's headless Service."""
    return f"{host_name(job.metadata.name, role, index)}.{job.metadata.name}.{job.metadata.namespace}.svc"


def is_alone(job: TrainingJob) -> bool:
    """Return whether the job trains in one pod: it needs no Service, since it connects to no other pod."""
    spec = job.spec
    return spec.workers.max_replicas == 1 and spec.parameter_servers is None and spec.chief is None


def report_environment(url: str, *, reports: bool, requests_chunks: bool, has_ca: bool = False) -> dict[str, str]:
    """Return the variables of a pod that reports its job's progress or requests more chunks.

    Args:
        url: Address of the report API.
        reports: Whether the pod reports.
        requests_chunks: Whether the pod requests more chunks.
        has_ca: Whether the pod receives CA certificates for the address.
    """
    variables = {"TRANCHE_TOKEN": f"{TOKEN_DIRECTORY}/{TOKEN_FILE}"}
    variables |= {"TRANCHE_CA": f"{TOKEN_DIRECTORY}/{CA_FILE}"} if has_ca else {}
    return variables | ({"TRANCHE_API": url} if reports else {}) | ({"TRANCHE_NEXT": url} if requests_chunks else {})


def worker_environment(job: TrainingJob, window: PlannedWindow, checkpoint_directory: str) -> dict[str, str]:
    """Return the variables of a worker's containers."""
    variables = _common(job, window, checkpoint_directory)
    variables[GRACE_SECONDS] = _grace(job.spec.workers.template)
    variables["TRANCHE_CHUNKS"] = ",".join(map(str, window.chunks))
    variables["TRANCHE_RESUME"] = _resume(job, window.chunks)
    if job.spec.parameter_servers is not None or job.spec.chief is not None:
        variables["TF_CONFIG"] = _tensorflow_config(job, ROLE_WORKER, window.index)
    if job.spec.data is None:
        variables |= _gang(job, window.index)
    return variables


def server_environment(job: TrainingJob, server: PlannedParameterServer, checkpoint_directory: str) -> dict[str, str]:
    """Return the variables of a parameter server's containers."""
    variables = _common(job, server, checkpoint_directory)
    if job.spec.parameter_servers is not None:
        variables[GRACE_SECONDS] = _grace(job.spec.parameter_servers.template)
    variables["TF_CONFIG"] = _tensorflow_config(job, ROLE_SERVER, server.index)
    return variables


def chief_environment(job: TrainingJob, chief: PlannedChief, checkpoint_directory: str) -> dict[str, str]:
    """Return the variables of the containers of a gang's chief, which reports for all members."""
    variables = _common(job, chief, checkpoint_directory)
    if job.spec.chief is not None:
        variables[GRACE_SECONDS] = _grace(job.spec.chief.template)
    variables["TRANCHE_RESUME"] = _resume(job, list(range(job.spec.workers.max_replicas)))
    variables["TF_CONFIG"] = _tensorflow_config(job, ROLE_CHIEF, chief.index)
    return variables


def staging_environment(job: TrainingJob, staging: PlannedStaging, checkpoint_directory: str) -> dict[str, str]:
    """Return the variables of a staging pod's containers."""
    data = job.spec.data
    return {
        "TRANCHE_JOB": job.key,
        "TRANCHE_JOB_UID": job.metadata.uid,
        "TRANCHE_ATTEMPT": str(staging.attempt or 0),
        "TRANCHE_CHUNK_COUNT": str(data.chunks if data else 0),
        "TRANCHE_CHUNKS": ",".join(map(str, sorted(parse_chunks(staging.chunks)))),
        DIRECTORY_VARIABLE: checkpoint_directory,
        "TRANCHE_DATA_SITE": (data.site if data else None) or "",
        "TRANCHE_SITE": staging.site,
    }


def container_environment(container: Mapping[str, Any], variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of one container that differ from those of its pod.

    The kubelet reads a termination message from the path of the container only; a variable of the template takes
    precedence. It sends SIGTERM after the container's hook, whose time is a part of the grace period.

    Args:
        container: The container of the template.
        variables: Variables of all containers of the pod.
    """
    path: str = container.get("terminationMessagePath") or DEFAULT_TERMINATION_PATH
    is_set = any(variable.get("name") == TERMINATION_LOG for variable in container.get("env") or [])
    own = {} if is_set or path == DEFAULT_TERMINATION_PATH else {TERMINATION_LOG: path}
    hook = (container.get("lifecycle") or {}).get("preStop") or {}
    slept = (hook.get("sleep") or {}).get("seconds") or 0
    if slept and GRACE_SECONDS in variables:
        own[GRACE_SECONDS] = str(max(LEAST_GRACE_SECONDS, int(variables[GRACE_SECONDS]) - slept))
    return own


def _common(
    job: TrainingJob, entry: PlannedWindow | PlannedParameterServer, checkpoint_directory: str
) -> dict[str, str]:
    data, asked = job.spec.data, job.spec.communication
    communication = (
        {} if asked is None else {"TRANCHE_COMMUNICATION": asked.model_dump_json(by_alias=True, exclude_defaults=True)}
    )
    return communication | {
        "TRANCHE_JOB": job.key,
        "TRANCHE_JOB_UID": job.metadata.uid,
        "TRANCHE_INDEX": str(entry.index),
        "TRANCHE_ATTEMPT": str(entry.attempt),
        "TRANCHE_CHUNK_COUNT": str(data.chunks if data else job.spec.workers.max_replicas),
        "TRANCHE_EPOCHS": str(data.epochs if data else 1),
        "TRANCHE_BATCHES": str(data.batches_per_chunk if data else 1),
        DIRECTORY_VARIABLE: checkpoint_directory,
    }


def _grace(template: Mapping[str, Any]) -> str:
    """Return the seconds between SIGTERM and SIGKILL; Kubernetes' default is 30, and a pod of a job has at least 1."""
    given = (template.get("spec") or {}).get("terminationGracePeriodSeconds")
    return str(30 if given is None else max(1, given))


def _resume(job: TrainingJob, chunks: list[int]) -> str:
    """Return the durable mini-batches of the given chunks that have been started, as ``5:1160,7:3``.

    The numbers are integers, except for a member of a gang: its whole run counts as one batch, and its checkpoint
    contains a fraction of it.
    """
    progress = job.status.progress
    begun = {partial.chunk: partial.batches for partial in progress.running} if progress else {}
    if job.spec.data is not None:
        begun = {chunk: int(batches) for chunk, batches in begun.items()}
    return ",".join(f"{chunk}:{begun[chunk]}" for chunk in chunks if begun.get(chunk))


def _tensorflow_config(job: TrainingJob, role: str, index: int) -> str:
    counts = {ROLE_CHIEF: 1} if job.spec.chief is not None else {}
    counts[ROLE_WORKER] = job.spec.workers.max_replicas
    if job.spec.parameter_servers is not None:
        counts[ROLE_SERVER] = job.spec.parameter_servers.replicas
    cluster = {
        name: [f"{address(job, name, number)}:{TENSORFLOW_PORT}" for number in range(count)]
        for name, count in counts.items()
    }
    return json.dumps({"cluster": cluster, "task": {"type": role, "index": index}}, separators=(",", ":"))


def _gang(job: TrainingJob, index: int) -> dict[str, str]:
    """Return the rendezvous variables of an all-reduce job for torch.distributed's ``env://`` and torchrun (PET_*)."""
    leader = "localhost" if is_alone(job) else address(job, ROLE_WORKER, 0)
    size, port = str(job.spec.workers.max_replicas), str(_rendezvous_port(job))
    return {
        "MASTER_ADDR": leader,
        "MASTER_PORT": port,
        "WORLD_SIZE": size,
        "RANK": str(index),
        "PET_NNODES": size,
        "PET_NODE_RANK": str(index),
        "PET_MASTER_ADDR": leader,
        "PET_MASTER_PORT": port,
        "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": _grace(job.spec.workers.template),  # torchrun kills after 30 s otherwise
    }


def _rendezvous_port(job: TrainingJob) -> int:
    if not (job.spec.workers.template.get("spec") or {}).get("hostNetwork"):
        return RENDEZVOUS_PORT
    return HOST_PORTS[zlib.crc32(job.metadata.uid.encode()) % len(HOST_PORTS)]
