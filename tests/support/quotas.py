"""ResourceQuotas that are in force when a test goes on."""

from collections.abc import Mapping

from support.waiting import eventually
from tranche_testcluster import Cluster


def impose_quota(cluster: Cluster, name: str, hard: Mapping[str, str], namespace: str = "default") -> str:
    """Create a ResourceQuota, wait until the API server enforces it, and return its path.

    The API server admits objects beyond a quota that its own cache does not hold yet, although the quota controller has
    written the quota's status already, and does not count them until the controller's next full pass, up to 5 minutes
    later. The quota therefore forbids Secrets too, and the wait ends when the API server refuses one.
    """
    core = f"/api/v1/namespaces/{namespace}"
    body = {"metadata": {"name": name}, "spec": {"hard": {**hard, "secrets": "0"}}}
    status, answer = cluster.request("POST", f"{core}/resourcequotas", body)
    assert status == 201, answer
    path = f"{core}/resourcequotas/{name}"
    probe = {"metadata": {"name": f"{name}-probe"}}

    def is_enforced() -> bool:
        refused, answer = cluster.request("POST", f"{core}/secrets?dryRun=All", probe)
        return refused == 403 and f"exceeded quota: {name}" in str(answer)

    eventually(is_enforced, f"the API server enforces the quota {name}")
    counted = lambda: cluster.request("GET", path)[1].get("status", {}).get("used")  # noqa: E731
    eventually(counted, f"the quota controller counts for {name}")
    return path
