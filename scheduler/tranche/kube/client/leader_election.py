"""Leader election with a Lease, as in client-go: one leader at a time, and a larger term for each new leader.

Clocks of different machines are never compared. A candidate takes the Lease when it has not changed for the lease
duration by the candidate's own clock. The leader counts from before it sent its last renewal, so it stops first.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tranche.kube.api.timestamp import rfc3339
from tranche.kube.client.client import ApiClient
from tranche.kube.client.errors import ApiError

logger = logging.getLogger(__name__)

LEASE = "tranche-scheduler"
REFUSED_STATUSES = (413, 422)
"""Statuses of the answers to an object that is too large, or that the API server does not accept."""


def leases_path(namespace: str) -> str:
    """Return the API path of the Leases of a namespace."""
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"


class LeadershipLostError(Exception):
    """Another process is the leader, or may be; this one must stop."""


@dataclass(frozen=True, slots=True)
class LeaseSettings:
    """Name and times of the leader election."""

    name: str = LEASE
    duration_seconds: int = 8
    """Lease duration. Another replica may take the Lease after this time without a renewal. A crash costs this time and
    a restore."""
    takeover_seconds: int = 60
    """Lease duration until the first renewal: a new leader first reads all jobs and does nothing else meanwhile."""
    renewal_seconds: float = 2.0
    """Time between two renewals; three may fail before the Lease is lost."""
    retry_seconds: float = 1.0
    """Poll interval of candidates, and therefore the time until a released Lease is taken."""
    forbidden_seconds: float = 30.0
    """Grace period for 403 responses: a new API server rejects all requests until it has loaded the RBAC roles."""


class Leadership:
    """One candidate of the leader election."""

    def __init__(
        self,
        client: ApiClient,
        namespace: str,
        identity: str,
        settings: LeaseSettings | None = None,
        *,
        annotations: Callable[[], Mapping[str, str]] = dict,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Create a candidate that has not requested the Lease yet.

        Args:
            client: Client of the API server.
            namespace: Namespace of the Lease.
            identity: Name of this candidate. If it is already the holder, it may take the Lease again at once.
            settings: Name and times.
            annotations: Returns annotations to set with every write; other annotations of the Lease are kept.
            clock: Monotonic seconds that also advance while the process is stopped.
            sleep: Waits for a number of seconds of that clock.
        """
        self._client = client
        self._collection = leases_path(namespace)
        self._namespace = namespace
        self._identity = identity
        self._settings = settings or LeaseSettings()
        self._annotations = annotations
        self._clock = clock
        self._sleep = sleep
        self._lease: dict[str, Any] = {}
        self._until = float("-inf")
        self._are_refused = False
        """Whether the API server refused our annotations at the last write."""

    @property
    def held(self) -> bool:
        """Whether this process holds the Lease and no other process can hold it."""
        return self._clock() < self._until

    @property
    def annotations(self) -> Mapping[str, str]:
        """Annotations of the Lease as last written or read, including those of earlier holders."""
        return self._lease.get("metadata", {}).get("annotations") or {}

    async def take(self, largest_term: Callable[[], int]) -> int:
        """Wait until the Lease is free, take it, and return the new term (the number of transitions).

        Args:
            largest_term: Returns the largest term in any plan; the new term is larger even if the Lease was deleted.

        Raises:
            ApiError: the API server rejects the requests permanently.
        """
        seen: tuple[object, ...] = ()
        since = began = self._clock()
        while True:
            try:
                lease = await self._read()
                spec = lease.setdefault("spec", {})
                record = (spec.get("holderIdentity"), spec.get("renewTime"), spec.get("leaseTransitions"))
                if record != seen:
                    seen, since = record, self._clock()
                wait = since + (spec.get("leaseDurationSeconds") or self._settings.duration_seconds) - self._clock()
                if spec.get("holderIdentity") in (None, "", self._identity) or wait <= 0:
                    term = (spec.get("leaseTransitions") or largest_term()) + 1
                    seconds = self._settings.takeover_seconds
                    if await self._write(lease, seconds=seconds, acquireTime=self._micro_now(), leaseTransitions=term):
                        return term
                    wait = self._settings.retry_seconds
            except ApiError as error:
                if not _passes(error) and not (
                    error.status == 403 and self._clock() < began + self._settings.forbidden_seconds
                ):
                    raise
                logger.warning("Lease %s: %s; retrying", self._settings.name, error)
                wait = self._settings.retry_seconds
            await self._sleep(min(wait, self._settings.retry_seconds))

    async def keep(self) -> None:
        """Renew the Lease forever; the first renewal, at once, replaces the long duration of the take-over.

        After the answer to a renewal was lost, the next one conflicts: the Lease is read and renewed again at once.
        Renewals begin `renewal_seconds` apart, however long their answers take.

        Raises:
            LeadershipLostError: another process holds the Lease, or it could not be renewed in time.
        """
        while True:
            began = self._clock()
            try:
                if not await self._write(self._lease):
                    await self._look()
                    await self._write(self._lease)
            except ApiError as error:
                if not self.held:
                    raise LeadershipLostError(f"Lease {self._settings.name} could not be renewed: {error}") from error
            await self._sleep(max(0.0, began + self._settings.renewal_seconds - self._clock()))

    async def release(self) -> None:
        """Release the Lease if this process holds it, so that another one can take it at once. Errors are ignored."""
        if self.held:
            with contextlib.suppress(ApiError):
                await self._write(self._lease, holder="")
            self._until = float("-inf")

    async def _look(self) -> None:
        """Read the Lease after another process changed it, and check the holder."""
        lease = await self._read()
        holder, term = lease.get("spec", {}).get("holderIdentity"), lease.get("spec", {}).get("leaseTransitions")
        if holder != self._identity or term != self._lease["spec"]["leaseTransitions"]:
            self._until = float("-inf")
            raise LeadershipLostError(f"Lease {self._settings.name} is held by {holder or 'no process'} (term {term})")
        self._lease = lease

    async def _read(self) -> dict[str, Any]:
        name = self._settings.name
        try:
            path = f"{self._collection}/{name}"
            return await self._client.request("GET", path, timeout=self._settings.duration_seconds / 2)
        except ApiError as error:
            if error.status != 404:
                raise
        return {"metadata": {"name": name, "namespace": self._namespace}}

    async def _write(
        self, lease: dict[str, Any], holder: str | None = None, seconds: int | None = None, **changes: object
    ) -> bool:
        """Write the Lease, held for `seconds` from now by this process or `holder`.

        If the API server refuses the annotations, those that are on the Lease stay there. False if the Lease changed
        since it was read.
        """
        began, seconds = self._clock(), seconds or self._settings.duration_seconds
        spec = {
            **lease["spec"],
            **changes,
            "holderIdentity": self._identity if holder is None else holder,
            "leaseDurationSeconds": seconds,
            "renewTime": self._micro_now(),
        }
        body = {**lease, "spec": spec}
        if annotations := self._annotations():
            metadata = lease["metadata"]
            body["metadata"] = {**metadata, "annotations": {**metadata.get("annotations", {}), **annotations}}
        try:
            answer = await self._send(body)
            self._are_refused = False
        except ApiError as error:
            if not annotations or error.status not in REFUSED_STATUSES:
                raise
            self._note_refusal(error)
            body = {**lease, "spec": spec}
            answer = await self._send(body)
        if answer is None:
            return False
        self._lease, self._until = {**body, **answer}, began + seconds
        return True

    async def _send(self, lease: dict[str, Any]) -> dict[str, Any] | None:
        """Send the Lease and return it as stored; None if it changed since it was read."""
        exists = "resourceVersion" in lease["metadata"]
        method, path = ("PUT", f"{self._collection}/{self._settings.name}") if exists else ("POST", self._collection)
        try:
            return await self._client.request(method, path, body=lease, timeout=self._settings.duration_seconds / 2)
        except ApiError as error:
            if error.status == 409 or (error.status == 404 and exists):
                return None
            raise

    def _note_refusal(self, error: ApiError) -> None:
        if not self._are_refused:
            logger.warning("Lease %s keeps its former annotations: %s", self._settings.name, error)
        self._are_refused = True

    def _micro_now(self) -> str:
        """Return the time for readers of the Lease, who compare it with the clock of the API server."""
        return rfc3339(self._client.server_time(), microseconds=True)


def _passes(error: ApiError) -> bool:
    """Return whether a retry may succeed."""
    return error.status in (0, 409, 429) or error.status >= 500
