"""Limits of the sizes of a TrainingJob, checked before anything is planned for it.

etcd takes objects of at most 1.5 MiB. A template may be large enough that the job is created and its status is not
taken; then it could never be planned. Linux takes environment variables of at most 128 KiB each.
"""

import msgspec

from tranche.kube.api.names import ROLE_CHIEF, ROLE_SERVER, ROLE_WORKER
from tranche.kube.api.resources import TrainingJob
from tranche.kube.convert.pod_shape import pod_constraints, pod_of_template

MAX_TEMPLATE_BYTES = 256 * 1024
"""Maximum size of all pod templates of a job as JSON: ``kubectl apply`` can store no more in its annotation either."""
MAX_NODE_EXPRESSIONS = 100
"""Maximum number of expressions in the required node affinity of a template: the planner evaluates all of them for each
node, again after each change of a node, and a template of 256 KiB has room for 3,800."""
MAX_VARIABLE_BYTES = 128 * 1024 - 1
"""Maximum size of an environment variable with its name, without the final zero byte (MAX_ARG_STRLEN)."""
_CONFIG_BYTES = len('TF_CONFIG={"cluster":{"chief":[],"worker":[],"ps":[]},"task":{"type":"worker","index":99999}}')


def check_sizes(resource: TrainingJob) -> None:
    """Check the sizes of a job's templates and of the variables that its pods get.

    Raises:
        ValueError: a limit is exceeded.
    """
    spec = resource.spec
    parts = (spec.workers, spec.parameter_servers, spec.chief, spec.data.staging if spec.data is not None else None)
    size = sum(len(msgspec.json.encode(part.template)) for part in parts if part is not None)
    if size > MAX_TEMPLATE_BYTES:
        raise ValueError(
            f"the pod templates have {size // 1024} KiB together, at most {MAX_TEMPLATE_BYTES // 1024} KiB leave room "
            "for the status in the API server: put large values into a ConfigMap, a Secret or the image"
        )
    for part in parts:
        affinity = pod_constraints(pod_of_template(part.template)).affinity if part is not None else None
        if (count := sum(max(1, len(term)) for term in affinity or ())) > MAX_NODE_EXPRESSIONS:
            raise ValueError(
                f"the required node affinity of a pod template has {count} expressions, at most "
                f"{MAX_NODE_EXPRESSIONS} are planned: select nodes by a label that they share"
            )
    if spec.parameter_servers is None and spec.chief is None:
        return
    hosts = _hosts_bytes(resource, ROLE_WORKER, spec.workers.max_replicas)
    hosts += _hosts_bytes(resource, ROLE_SERVER, spec.parameter_servers.replicas if spec.parameter_servers else 0)
    hosts += _hosts_bytes(resource, ROLE_CHIEF, 1 if spec.chief else 0)
    if hosts + _CONFIG_BYTES > MAX_VARIABLE_BYTES:
        raise ValueError(
            f"TF_CONFIG with the addresses of {spec.workers.max_replicas} workers has {hosts // 1024} KiB, an "
            "environment variable at most 128 KiB: choose a shorter name or namespace, or fewer workers"
        )


def _hosts_bytes(resource: TrainingJob, role: str, count: int) -> int:
    """Return an upper bound of the length of the role's quoted addresses with their commas."""
    name, namespace = resource.metadata.name, resource.metadata.namespace
    return count * len(f'"{name}-{role}-{count}.{name}.{namespace}.svc:2222",')
