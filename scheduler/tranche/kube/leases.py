"""Leader election by a Lease, after client-go: one holder at a time, and each a larger term than all before it.

Nobody compares clocks: who waits takes over when the Lease has not changed for as long as its holder promised, by the
waiter's own clock; the holder counts from before it sent its last renewal, so it stops first.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tranche.kube.clients import ApiClient
from tranche.kube.errors import ApiError
from tranche.kube.timestamps import rfc3339

logger = logging.getLogger(__name__)

LEASE = "tranche-scheduler"
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"


class DeposedError(Exception):
    """Another planner leads, or may do so by now; this one must stop."""


@dataclass(frozen=True, slots=True)
class LeaseSettings:
    """Times are in seconds."""

    name: str = LEASE
    duration: int = 8
    """Nobody takes the Lease over before it has not been renewed for so long. A crash costs this and a restore."""
    takeover: int = 60
    """Instead, until it is renewed first: a new leader reads all jobs before, and hears of nothing else."""
    renewal: float = 2.0
    """Between two renewals: three may fail before the Lease is lost."""
    retry: float = 1.0
    """Between two looks of those who wait; a Lease that is released is taken so soon."""
    forbidden: float = 30.0
    """How long a 403 is borne: an API server that has just started refuses everybody until it has read the roles."""


class Leadership:
    """One candidate."""

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
        """Nothing is asked for yet.

        Args:
            client: Of the API server.
            namespace: Of the Lease.
            identity: Who we are: the pod's name. A process that finds itself as the holder is its own successor.
            settings: Name and times.
            annotations: To be set on the Lease with every write; others on it are left.
            clock: Monotonic seconds; goes on while the process is stopped.
            sleep: Waits by that clock.
        """
        self._client = client
        self._collection = _LEASES.format(namespace)
        self._namespace = namespace
        self._identity = identity
        self._settings = settings or LeaseSettings()
        self._annotations = annotations
        self._clock = clock
        self._sleep = sleep
        self._lease: dict[str, Any] = {}
        self._until = float("-inf")

    @property
    def held(self) -> bool:
        """Whether nobody else can hold the Lease now."""
        return self._clock() < self._until

    @property
    def annotations(self) -> Mapping[str, str]:
        """Of the Lease as it was last written or read, those of earlier holders included."""
        return self._lease.get("metadata", {}).get("annotations") or {}

    async def take(self, largest_term: Callable[[], int]) -> int:
        """Wait until the Lease is free, take it, and return our term: how often it has changed hands.

        Args:
            largest_term: The largest term in any plan; ours is larger even if the Lease was deleted in between.

        Raises:
            ApiError: if the API server refuses for good.
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
                wait = since + (spec.get("leaseDurationSeconds") or self._settings.duration) - self._clock()
                if spec.get("holderIdentity") in (None, "", self._identity) or wait <= 0:
                    term = max(spec.get("leaseTransitions") or 0, largest_term()) + 1
                    seconds = self._settings.takeover
                    if await self._write(lease, seconds=seconds, acquireTime=_micro_now(), leaseTransitions=term):
                        return term
                    continue
            except ApiError as error:
                if not _passes(error) and not (
                    error.status == 403 and self._clock() < began + self._settings.forbidden
                ):
                    raise
                logger.warning("Lease %s: %s; retrying", self._settings.name, error)
                wait = self._settings.retry
            await self._sleep(min(wait, self._settings.retry))

    async def keep(self) -> None:
        """Renew the Lease at once, so that it need not last for a takeover any more, and for ever.

        Raises:
            DeposedError: when another one holds it, or it could not be renewed in time.
        """
        while True:
            try:
                if not await self._write(self._lease):
                    await self._look()
            except ApiError as error:
                if not self.held:
                    raise DeposedError(f"Lease {self._settings.name} could not be renewed: {error}") from error
            await self._sleep(self._settings.renewal)

    async def release(self) -> None:
        """Let another one take over at once, if we hold the Lease; a failure only makes it wait."""
        if self.held:
            with contextlib.suppress(ApiError):
                await self._write(self._lease, holder="")
            self._until = float("-inf")

    async def _look(self) -> None:
        """The Lease was changed by somebody: by whom?"""
        lease = await self._read()
        holder, term = lease.get("spec", {}).get("holderIdentity"), lease.get("spec", {}).get("leaseTransitions")
        if holder != self._identity or term != self._lease["spec"]["leaseTransitions"]:
            self._until = float("-inf")
            raise DeposedError(f"Lease {self._settings.name} is held by {holder or 'no process'} (term {term})")
        self._lease = lease

    async def _read(self) -> dict[str, Any]:
        name = self._settings.name
        try:
            path = f"{self._collection}/{name}"
            return await self._client.request("GET", path, timeout=self._settings.duration / 2)
        except ApiError as error:
            if error.status != 404:
                raise
        return {"metadata": {"name": name, "namespace": self._namespace}}

    async def _write(
        self, lease: dict[str, Any], holder: str | None = None, seconds: int | None = None, **changes: object
    ) -> bool:
        """Hold the Lease for some time from now on (or have `holder` do so); False if it is not as it was read."""
        began, name, seconds = self._clock(), self._settings.name, seconds or self._settings.duration
        spec = {
            **lease["spec"],
            **changes,
            "holderIdentity": self._identity if holder is None else holder,
            "leaseDurationSeconds": seconds,
            "renewTime": _micro_now(),
        }
        exists = "resourceVersion" in lease["metadata"]
        method, path = ("PUT", f"{self._collection}/{name}") if exists else ("POST", self._collection)
        metadata = lease["metadata"]
        if annotations := self._annotations():
            metadata = {**metadata, "annotations": {**metadata.get("annotations", {}), **annotations}}
        body, timeout = {**lease, "metadata": metadata, "spec": spec}, self._settings.duration / 2
        try:
            answer = await self._client.request(method, path, body=body, timeout=timeout)
        except ApiError as error:
            if error.status in (404, 409):
                return False
            raise
        self._lease, self._until = {**body, **answer}, began + seconds
        return True


def _micro_now() -> str:
    return rfc3339(time.time(), microseconds=True)


def _passes(error: ApiError) -> bool:
    """Whether trying again may help."""
    return error.status in (0, 409, 429) or error.status >= 500
