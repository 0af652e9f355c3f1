"""URL paths of the API server. Names of objects are DNS names, so they need no escaping."""

from tranche.kube.api.resources import API_VERSION

RESOURCES = f"/apis/{API_VERSION}"
ALL_JOBS = f"{RESOURCES}/trainingjobs"
ALL_PODS = "/api/v1/pods"
ALL_BUDGETS = "/apis/policy/v1/poddisruptionbudgets"


def job(namespace: str, name: str) -> str:
    """Return the path of a TrainingJob."""
    return f"{jobs(namespace)}/{name}"


def jobs(namespace: str) -> str:
    """Return the path of the TrainingJobs of a namespace."""
    return f"{RESOURCES}/namespaces/{namespace}/trainingjobs"


def site(name: str) -> str:
    """Return the path of a Site."""
    return f"{RESOURCES}/sites/{name}"


def pods(namespace: str) -> str:
    """Return the path of the pods of a namespace."""
    return f"/api/v1/namespaces/{namespace}/pods"


def pod(namespace: str, name: str) -> str:
    """Return the path of a pod."""
    return f"{pods(namespace)}/{name}"


def collection_of(path: str) -> str:
    """Return the namespace and the kind of objects of a path, such as ``lab/pods``; a path without them unchanged."""
    namespace, _, rest = path.partition("/namespaces/")[2].partition("/")
    return f"{namespace}/{rest.partition('/')[0]}" if rest else path


def services(namespace: str) -> str:
    """Return the path of the Services of a namespace."""
    return f"/api/v1/namespaces/{namespace}/services"


def events(namespace: str) -> str:
    """Return the path of the events of a namespace."""
    return f"/api/v1/namespaces/{namespace}/events"


def event(namespace: str, name: str) -> str:
    """Return the path of an event."""
    return f"{events(namespace)}/{name}"
