"""The environment variables of training containers: who am I, what do I train, where are the others."""

import json

from tranche.kube.names import ROLE_SERVER, ROLE_WORKER
from tranche.kube.resources import PlannedParameterServer, PlannedWindow, TrainingJob

TENSORFLOW_PORT = 2222
"""Where workers and parameter servers listen (the usual port of TensorFlow's servers)."""
RENDEZVOUS_PORT = 29500
"""Where rank 0 of a gang listens (the default of torchrun)."""


def host_name(job: TrainingJob, role: str, index: int) -> str:
    """Host name of a worker or server: the same for every attempt."""
    return f"{job.metadata.name}-{role}-{index}"


def address(job: TrainingJob, role: str, index: int) -> str:
    """DNS name of a worker or server under the job's headless Service."""
    return f"{host_name(job, role, index)}.{job.metadata.name}.{job.metadata.namespace}.svc"


def worker_environment(job: TrainingJob, window: PlannedWindow, checkpoint_directory: str) -> dict[str, str]:
    """Variables of a worker's containers."""
    variables = _common(job, window.attempt, checkpoint_directory)
    variables["TRANCHE_CHUNKS"] = ",".join(map(str, window.chunks))
    variables["TRANCHE_RESUME"] = _resume(job, window.chunks)
    if job.spec.parameter_servers is not None:
        variables["TF_CONFIG"] = _tensorflow_config(job, ROLE_WORKER, window.index)
    if job.spec.data is None:
        variables |= _gang(job, window.index)
    return variables


def server_environment(job: TrainingJob, server: PlannedParameterServer, checkpoint_directory: str) -> dict[str, str]:
    """Variables of a parameter server's containers."""
    variables = _common(job, server.attempt, checkpoint_directory)
    variables["TF_CONFIG"] = _tensorflow_config(job, ROLE_SERVER, server.index)
    return variables


def _common(job: TrainingJob, attempt: int, checkpoint_directory: str) -> dict[str, str]:
    data = job.spec.data
    return {
        "TRANCHE_JOB": job.key,
        "TRANCHE_ATTEMPT": str(attempt),
        "TRANCHE_CHUNK_COUNT": str(data.chunks if data else job.spec.workers.max_replicas),
        "TRANCHE_EPOCHS": str(data.epochs if data else 1),
        "TRANCHE_BATCHES": str(data.batches_per_chunk if data else 1),
        "TRANCHE_CHECKPOINT_DIR": checkpoint_directory,
    }


def _resume(job: TrainingJob, chunks: list[int]) -> str:
    """Batches that are already durable, of the given chunks that are begun: ``5:1160,7:3``."""
    progress = job.status.progress
    begun = {partial.chunk: int(partial.batches) for partial in progress.running} if progress else {}
    return ",".join(f"{chunk}:{begun[chunk]}" for chunk in chunks if begun.get(chunk))


def _tensorflow_config(job: TrainingJob, role: str, index: int) -> str:
    counts = {ROLE_WORKER: job.spec.workers.max_replicas}
    if job.spec.parameter_servers is not None:
        counts[ROLE_SERVER] = job.spec.parameter_servers.replicas
    cluster = {
        name: [f"{address(job, name, number)}:{TENSORFLOW_PORT}" for number in range(count)]
        for name, count in counts.items()
    }
    return json.dumps({"cluster": cluster, "task": {"type": role, "index": index}}, separators=(",", ":"))


def _gang(job: TrainingJob, index: int) -> dict[str, str]:
    """Rendezvous of an all-reduce job, as torch.distributed's ``env://`` and torchrun (PET_*) read it."""
    leader, size = address(job, ROLE_WORKER, 0), str(job.spec.workers.max_replicas)
    return {
        "MASTER_ADDR": leader,
        "MASTER_PORT": str(RENDEZVOUS_PORT),
        "WORLD_SIZE": size,
        "RANK": str(index),
        "PET_NNODES": size,
        "PET_NODE_RANK": str(index),
        "PET_MASTER_ADDR": leader,
        "PET_MASTER_PORT": str(RENDEZVOUS_PORT),
    }
