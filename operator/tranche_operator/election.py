"""Leader election of the operator: of several replicas, one reconciles, and the others wait.

Two operators at once do no harm, since every request is idempotent and every name deterministic. They would double the
load on the API server and the watches, so the Lease is no fence: it only says who works.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from tranche.kube.client.client import ApiClient
from tranche.kube.client.leader_election import Leadership, LeadershipLostError, LeaseSettings
from tranche.runtime.supervision import run_until_first_exit

logger = logging.getLogger(__name__)

LEASE = "tranche-operator"


class Election:
    """One replica of the operator in the leader election."""

    def __init__(
        self, client: ApiClient, namespace: str, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        """Create a replica that has not requested the Lease yet.

        Args:
            client: Client of the API server.
            namespace: Namespace of the Lease.
            sleep: Waits for a number of seconds.
        """
        identity = f"{socket.gethostname()}_{os.getpid()}"
        self._leadership = Leadership(client, namespace, identity, LeaseSettings(name=LEASE), sleep=sleep)
        self.is_standby = True
        """Whether another replica reconciles, or this one has just started."""

    async def run(self, serve: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Wait for the Lease, then keep it while `serve` runs; release it at the end.

        Raises:
            LeadershipLostError: another replica holds the Lease, or it could not be renewed in time.
        """
        logger.info("waiting for the Lease %s", LEASE)
        term = await self._leadership.take(int)
        self.is_standby = False
        logger.info("term %d: this replica reconciles", term)
        try:
            await run_until_first_exit(lease=self._leadership.keep(), operator=serve())
        except ExceptionGroup as group:
            if deposed := group.subgroup(LeadershipLostError):
                raise LeadershipLostError(str(deposed.exceptions[0])) from None
            raise
        finally:
            await self._leadership.release()
