"""Progress reports and chunk requests at the planner, which only the leader accepts."""

from typing import Protocol

from tranche.model import ChunkGrant, ChunkRequest, Report


class NotLeadingError(Exception):
    """No leader can be asked now; the request may be repeated later."""


class Inbox(Protocol):
    """Queue of progress reports."""

    @property
    def leading(self) -> bool:
        """Whether this process is the leader at this moment, and has restored its state."""

    def take(self, report: Report) -> bool:
        """Queue a report for the planner; False if a newer attempt has superseded this one."""


class Granter(Protocol):
    """Source of chunk grants for workers."""

    async def ask(self, request: ChunkRequest) -> ChunkGrant | None:
        """Return the next chunks for the worker; None if its attempt has ended.

        Raises:
            TimeoutError: the plan with the grant could not be written in time.
        """


class PlannerReceiver:
    """Reports and chunk requests of workers, as long as this process leads.

    A former leader does not know the attempts that its successor opened: it must not tell them that they have ended.
    """

    def __init__(self, inbox: Inbox, granter: Granter) -> None:
        self._inbox = inbox
        self._granter = granter

    def check(self) -> None:
        """Raise NotLeadingError unless this process leads."""
        if not self._inbox.leading:
            raise NotLeadingError("this replica is not the leader, or it has just started")

    async def take(self, report: Report) -> bool:
        """Queue a report for the planner; False if a newer attempt has superseded this one.

        Raises:
            NotLeadingError: this process does not lead.
        """
        self.check()
        return self._inbox.take(report)

    async def ask(self, request: ChunkRequest) -> ChunkGrant | None:
        """Return the next chunks for the worker; None if its attempt has ended.

        Raises:
            NotLeadingError: this process does not lead, or not any more when the result is known.
            TimeoutError: the plan with the grant could not be written in time.
        """
        self.check()
        given = await self._granter.ask(request)
        self.check()
        return given
