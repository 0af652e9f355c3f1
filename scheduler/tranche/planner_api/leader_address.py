"""Address of the leader's planner API, which the leader publishes on its Lease."""

import asyncio
import time
from collections.abc import Callable
from typing import Any, Protocol

from tranche.kube.client.errors import ApiError
from tranche.kube.client.leader_election import LEASE, leases_path
from tranche.planner_api.receiver import NotLeadingError

ANNOTATION = "tranche.dev/planner-address"
FRESH_SECONDS = 2.0
"""Time for which an address is used without reading the Lease again."""
SHORTEST_PAUSE_SECONDS = 0.5
"""Minimum time between two reads of the Lease."""
READ_SECONDS = 4.0


class LeaseRequests(Protocol):
    """The part of `ApiClient` that is used."""

    async def request(self, method: str, path: str, *, timeout: float = 30.0) -> dict[str, Any]:
        """Send a request and return the decoded response."""


class LeaderAddress:
    """Address of the leader, read from the Lease when it is asked for.

    A Lease that has not changed for its duration has no leader. Its address may belong to another pod by now, which
    must not receive our token.
    """

    def __init__(self, client: LeaseRequests, namespace: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._path = f"{leases_path(namespace)}/{LEASE}"
        self._clock = clock
        self._reading = asyncio.Lock()
        self._read_at = self._due = float("-inf")
        self._record: tuple[object, ...] = ()
        self._until = float("-inf")
        """Time until which the address is valid without a renewal of the Lease."""
        self._address = ""

    async def find(self) -> str:
        """Return the URL of the leader's planner API.

        Raises:
            NotLeadingError: no replica leads.
        """
        if self._clock() >= self._due:
            async with self._reading:
                if self._clock() >= self._due:
                    await self._read()
        if not self._address or self._clock() >= self._until:
            raise NotLeadingError("no replica is the leader now")
        return self._address

    def doubt(self) -> None:
        """Read the Lease again before the next use: the replica at this address did not answer as the leader."""
        self._due = min(self._due, self._read_at + SHORTEST_PAUSE_SECONDS)

    async def _read(self) -> None:
        try:
            lease = await self._client.request("GET", self._path, timeout=READ_SECONDS)
        except ApiError:  # the last address stays valid until the Lease would have been renewed
            self._read_at = self._clock()
            self._due = self._read_at + SHORTEST_PAUSE_SECONDS
            return
        now = self._read_at = self._clock()
        self._due = now + FRESH_SECONDS
        spec = lease.get("spec") or {}
        record = (spec.get("holderIdentity"), spec.get("renewTime"), spec.get("leaseTransitions"))
        if record != self._record:
            self._record, self._until = record, now + (spec.get("leaseDurationSeconds") or 0)
        annotations = lease.get("metadata", {}).get("annotations") or {}
        self._address = annotations.get(ANNOTATION, "") if spec.get("holderIdentity") else ""
