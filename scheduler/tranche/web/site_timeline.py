"""Sites and node timelines for the page; results that are the same for all users are cached for a short time."""

import asyncio
import time
from bisect import bisect_right
from collections.abc import Awaitable, Callable
from operator import itemgetter
from typing import Any, TypeVar

import msgspec

from tranche.auth.user_access import Scope
from tranche.extender.site_summary import SiteSummary, list_sites
from tranche.extender.view import View
from tranche.model import PlannedWindow
from tranche.runtime.batching import portions
from tranche.web.overview_index import Board, Lane, Row, natural

FRESH_SECONDS = 2.0
"""Cache time in seconds, equal to the refresh interval of the page."""
T = TypeVar("T")


class Timeline(msgspec.Struct, frozen=True, rename="camel"):
    """Page of node timelines of one site."""

    site: str
    lanes: list[Lane]
    nodes: int
    """Number of nodes of the site, or of those with windows that the user may see."""
    next: str | None
    """Name of the last node on the page; null on the last page."""


class Timelines:
    """Timelines from a board, with results cached for `FRESH_SECONDS`."""

    def __init__(self, view: View, board: Board, clock: Callable[[], float] = time.monotonic) -> None:
        self._view = view
        self._board = board
        self._clock = clock
        self._cache: dict[str, tuple[float, Any]] = {}
        self._working = asyncio.Lock()

    async def sites(self) -> list[SiteSummary]:
        """Return the summaries of all sites."""
        return await self._recent("sites", lambda: list_sites(self._view))

    async def timeline(self, site: str, scope: Scope, whole: bool, after: str, limit: int) -> Timeline:
        """Return one page of node timelines of a site, by name.

        Args:
            site: Name of the site.
            scope: Namespaces to show.
            whole: Include all nodes with their capacity; otherwise only those with windows of the scope.
            after: Name of the last node of the previous page; empty for the first page.
            limit: Nodes per page.
        """
        awaited = (await self._recent("awaited", self._board.awaited)).get(site, {})
        listed = (await self._recent("nodes", self._by_site)).get(site, []) if whole else []
        later = self._board.later(site)
        names = self._nodes(site, scope, whole, awaited, later, listed)
        begin = bisect_right(names, natural(after), key=natural) if after else 0
        chosen = names[begin : begin + limit]
        lanes: list[Lane] = []
        async for nodes in portions(chosen, 16):
            lanes += [
                self._board.lane(site, node, scope, awaited.get(node, ()), later.get(node, ()), whole) for node in nodes
            ]
        has_more = begin + limit < len(names)
        return Timeline(site, lanes, len(names), chosen[-1] if has_more else None)

    def _nodes(
        self,
        site: str,
        scope: Scope,
        whole: bool,
        awaited: dict[str, list[Row]],
        later: dict[str, list[PlannedWindow]],
        names: list[str],
    ) -> list[str]:
        own = set(self._board.own_nodes(site, scope))
        own |= {
            node for node, windows in later.items() if any(window.job.partition("/")[0] in scope for window in windows)
        }
        if not whole:
            own |= {node for node, rows in awaited.items() if any(row.summary.namespace in scope for row in rows)}
            return sorted(own, key=natural)
        own -= set(names)  # the rest are windows without a node, at an unlimited site, or on deleted nodes
        return sorted({*names, *own}, key=natural) if own else names

    async def _by_site(self) -> dict[str, list[str]]:
        sortable: dict[str, list[tuple[list[Any], str]]] = {}
        async for names in portions(self._view.nodes):
            for name in names:
                site = self._view.site_of(name)
                if site is not None:
                    sortable.setdefault(site, []).append((natural(name), name))
        by_site: dict[str, list[str]] = {}
        async for sites in portions(sortable.items(), 1):
            by_site |= {site: [name for _, name in sorted(nodes, key=itemgetter(0))] for site, nodes in sites}
        return by_site

    async def _recent(self, name: str, work_out: Callable[[], Awaitable[T]]) -> T:
        async with self._working:  # concurrent requests wait for the same result
            cached = self._cache.get(name)
            now = self._clock()
            if cached is None or now >= cached[0]:
                cached = self._cache[name] = (now + FRESH_SECONDS, await work_out())
        value: T = cached[1]
        return value
