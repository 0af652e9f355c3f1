"""The Lease of the scheduler: its policy, its learned state, and whether it is held."""

from datetime import UTC, datetime
from typing import Any

from tranche.client.api_session import Session, refusals
from tranche.kube.client.errors import ApiError
from tranche.kube.client.leader_election import LEASE, leases_path

MARGIN_SECONDS = 30.0
"""Time after the end of a Lease from which its holder counts as absent: API servers may have different clocks."""


async def read_lease(session: Session, system_namespace: str) -> dict[str, Any]:
    """Return the Lease; an empty one if it does not exist, or if this user may not read it.

    Raises:
        ClusterError: the request fails for another reason.
    """
    try:
        lease: dict[str, Any] = await session.api.request("GET", f"{leases_path(system_namespace)}/{LEASE}")
    except ApiError as error:
        if error.status in (403, 404):
            return {}
        with refusals("read the scheduler's Lease"):
            raise
    return lease


def absence(lease: dict[str, Any], now: datetime) -> str:
    """Return a sentence if the Lease has expired; "" if it has not, or if it has no times.

    Args:
        lease: The Lease as JSON.
        now: Current time by the clock of the API server, with a time zone.
    """
    try:
        renewed = datetime.fromisoformat(lease["spec"]["renewTime"])
        silent = (now - renewed).total_seconds() - float(lease["spec"]["leaseDurationSeconds"])
    except (KeyError, TypeError, ValueError):
        return ""
    if silent < MARGIN_SECONDS:
        return ""
    since = renewed.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    return f"no scheduler has led since {since}: plans, times and reasons are from before, and running pods continue"
