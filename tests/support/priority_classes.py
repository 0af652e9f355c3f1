"""Priority classes of pods that no job owns, ready for use."""

from support.waiting import eventually
from tranche_testcluster import Cluster

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


def add_priority_class(cluster: Cluster, name: str, value: int, namespace: str = "default") -> str:
    """Create a class whose pods may preempt, and wait until pods with it are admitted.

    The API server reads classes for the admission of pods from its own watch. It refuses a pod with 403 while
    that watch has not delivered the class, which takes a moment on a busy machine.
    """
    status, answer = cluster.request("POST", CLASSES, {"metadata": {"name": name}, "value": value})
    assert status in (201, 409), answer
    spec = {"priorityClassName": name, "containers": [{"name": "main", "image": "none"}]}
    pod = {"metadata": {"name": f"asks-for-{name}"}, "spec": spec}
    pods = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"
    eventually(lambda: cluster.request("POST", pods, pod)[0] == 201, f"pods of class {name} are refused")
    return name
