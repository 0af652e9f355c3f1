"""Paths of the API server. Names of objects are DNS names, so nothing in them needs escaping."""

from tranche.kube.api.resources import API_VERSION

RESOURCES = f"/apis/{API_VERSION}"
ALL_JOBS = f"{RESOURCES}/trainingjobs"
ALL_PODS = "/api/v1/pods"


def job(namespace: str, name: str) -> str:
    """One TrainingJob."""
    return f"{jobs(namespace)}/{name}"


def jobs(namespace: str) -> str:
    """The TrainingJobs of a namespace."""
    return f"{RESOURCES}/namespaces/{namespace}/trainingjobs"


def site(name: str) -> str:
    """One Site."""
    return f"{RESOURCES}/sites/{name}"


def pods(namespace: str) -> str:
    """The pods of a namespace."""
    return f"/api/v1/namespaces/{namespace}/pods"


def pod(namespace: str, name: str) -> str:
    """One pod."""
    return f"{pods(namespace)}/{name}"


def budgets(namespace: str | None) -> str:
    """The disruption budgets of a namespace; None: of all."""
    place = f"namespaces/{namespace}/" if namespace else ""
    return f"/apis/policy/v1/{place}poddisruptionbudgets"


def services(namespace: str) -> str:
    """The Services of a namespace."""
    return f"/api/v1/namespaces/{namespace}/services"


def event(namespace: str, name: str) -> str:
    """One event."""
    return f"/api/v1/namespaces/{namespace}/events/{name}"
