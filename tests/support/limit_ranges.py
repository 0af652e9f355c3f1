"""LimitRanges that are in force when a test goes on."""

from collections.abc import Mapping

from support.waiting import eventually
from tranche_testcluster import Cluster


def impose_defaults(cluster: Cluster, name: str, requests: Mapping[str, str], namespace: str = "default") -> str:
    """Create a LimitRange with default requests of containers, wait until pods get them, and return its path.

    The API server reads LimitRanges from its own watch. It also remembers for 30 s that a namespace has had none.
    """
    core = f"/api/v1/namespaces/{namespace}"
    limit = {"type": "Container", "default": dict(requests), "defaultRequest": dict(requests)}
    body = {"metadata": {"name": name}, "spec": {"limits": [limit]}}
    status, answer = cluster.request("POST", f"{core}/limitranges", body)
    assert status == 201, answer
    pod = {"metadata": {"name": f"{name}-probe"}, "spec": {"containers": [{"name": "main", "image": "none"}]}}

    def is_applied() -> bool:
        status, answer = cluster.request("POST", f"{core}/pods?dryRun=All", pod)
        assert status == 201, answer
        return bool(answer["spec"]["containers"][0]["resources"].get("requests", {}).items() >= requests.items())

    eventually(is_applied, f"pods get the defaults of {name}")
    return f"{core}/limitranges/{name}"
