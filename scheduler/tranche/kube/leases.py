"""The Lease that numbers schedulers: every start gets a larger term than all before it."""

from datetime import UTC, datetime
from typing import Any

from tranche.kube.clients import ApiClient
from tranche.kube.errors import ApiError

LEASE = "tranche-scheduler"
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"


async def take_term(client: ApiClient, namespace: str, name: str = LEASE, identity: str = "", *, above: int = 0) -> int:
    """Count the Lease's transitions up by one and return them.

    There is no election: the rule on status.plan refuses whoever has a smaller term.

    Args:
        client: Of the API server.
        namespace: Of the Lease.
        name: Of the Lease.
        identity: Who we are, for people: the pod's name.
        above: Largest term seen in a plan. The answer is larger even if the Lease was deleted in between.

    Raises:
        ApiError: if the API server refuses, other than because another one was faster.
    """
    collection = _LEASES.format(namespace)
    while True:
        try:
            lease = await client.request("GET", f"{collection}/{name}")
        except ApiError as error:
            if error.status != 404:
                raise
            lease = {"metadata": {"name": name, "namespace": namespace}}
        held = lease.setdefault("spec", {})
        term = max(held.get("leaseTransitions") or 0, above) + 1
        _take(held, identity, term)
        try:
            if "resourceVersion" in lease["metadata"]:
                await client.request("PUT", f"{collection}/{name}", body=lease)
            else:
                await client.request("POST", collection, body=lease)
        except ApiError as error:
            if error.status == 409:
                continue
            raise
        return term


def _take(spec: dict[str, Any], identity: str, term: int) -> None:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec |= {"holderIdentity": identity or None, "acquireTime": now, "renewTime": now, "leaseTransitions": term}
