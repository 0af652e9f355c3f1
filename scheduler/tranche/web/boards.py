"""What the page shows of many jobs: an index that follows the watch, so that a look costs what it shows."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from heapq import nlargest, nsmallest
from typing import Any, Protocol

import msgspec

from tranche.extender.turns import portions
from tranche.extender.views import View, ViewSources
from tranche.kube.names import ROLE_WORKER, pod_name
from tranche.kube.objects import template_shape
from tranche.kube.resources import TrainingJob
from tranche.model import format_chunks
from tranche.web.reads import JobSummary, summary
from tranche.web.users import Scope

OVER = ("Succeeded", "Failed")
GROUPS = {"waiting": ("Waiting", "Suspended"), "running": ("Starting", "Running"), "finished": OVER}
"""Of the page, by phase."""
MOST_ROWS = 2000
"""Looked at in one turn of the loop."""
_LATEST = datetime.max.replace(tzinfo=UTC)
_EARLIEST = datetime.min.replace(tzinfo=UTC)


class Expectation(Protocol):
    """Where and when a job is expected to start, by the planner's rehearsal; times in seconds since the epoch."""

    @property
    def start(self) -> float:
        """Of its first worker."""

    @property
    def completion(self) -> float:
        """Of its last chunk."""

    @property
    def site(self) -> str:
        """Of the first worker; "" if that is not known."""

    @property
    def node(self) -> str:
        """The same."""


Expected = Callable[[str], Expectation | None]
"""By a job's key; None if the planner of this process does not know, or does not plan."""


def nothing_expected(key: str) -> None:
    """No planner in this process."""


class Bar(msgspec.Struct, frozen=True, rename="camel"):
    """One window, or where a waiting job will start."""

    namespace: str
    job: str
    index: int
    attempt: int
    gpus: int
    chunks: str
    start: datetime | None
    end: datetime | None
    state: str
    """Running, Planned (its pod does not train yet), Closing (it is to stop) or Expected (of a job that waits)."""


class Lane(msgspec.Struct, frozen=True, rename="camel"):
    """One node; gpus and usedGpus are null for who may not read sites."""

    node: str
    ready: bool
    gpus: int | None
    used_gpus: int | None
    bars: list[Bar]


@dataclass(frozen=True, slots=True)
class Row:
    """One job."""

    key: str
    generation: tuple[str, int]
    gpus: int
    """Of one worker."""
    summary: JobSummary
    ended: datetime | None
    places: Mapping[tuple[str, str], tuple[Bar, ...]]
    """Windows by site and node; node "" on an unlimited site."""


class Board:
    """All jobs by group, and their windows by node; kept as the watches report changes."""

    def __init__(self, view: View, watches: ViewSources, expected: Expected = nothing_expected) -> None:
        self._view = view
        self._expected = expected
        self.rows: dict[str, Row] = {}
        self._groups: dict[str, dict[str, Row]] = {group: {} for group in GROUPS}
        self._namespaces: dict[str, dict[str, Row]] = {}
        self._places: dict[str, dict[str, dict[str, tuple[Bar, ...]]]] = {}
        """Site, node, job."""
        watches.jobs.subscribe(self._note_job)

    @property
    def namespaces(self) -> list[str]:
        """That have jobs."""
        return sorted(self._namespaces)

    @property
    def sites(self) -> list[str]:
        """Where windows are."""
        return sorted(self._places)

    async def jobs(self, group: str, scope: Scope, find: str, limit: int) -> tuple[int, list[JobSummary]]:
        """How many jobs of a group there are, and the first of them: by planned start, or the last finished first."""
        rows: list[Row] = []
        async for some in portions(self._groups[group].values(), MOST_ROWS):
            if not scope.everything:
                some = [row for row in some if row.summary.namespace in scope.namespaces]
            rows += [row for row in some if find in row.key]
        first = nlargest(limit, rows, key=_end) if group == "finished" else nsmallest(limit, rows, key=_start)
        return len(rows), [row.summary for row in first]

    async def list_jobs(self, scope: Scope, phase: str, after: str, limit: int) -> list[JobSummary]:
        """Jobs by namespace and name, at most `limit` of them, those after the key `after`; "" is any phase."""
        found: list[JobSummary] = []
        async for keys in portions(sorted(key for key in self.rows if key > after), MOST_ROWS):
            told = (self.rows[key].summary for key in keys if key in self.rows)
            found += [one for one in told if one.namespace in scope and phase in ("", one.phase)]
            if len(found) >= limit:
                break
        return found[:limit]

    def own_sites(self, scope: Scope) -> list[str]:
        """Sites where windows are that he may see."""
        if scope.everything:
            return self.sites
        return sorted({site for row in self._own(scope) for site, _ in row.places})

    def own_nodes(self, site: str, scope: Scope) -> list[str]:
        """Nodes of a site where such windows are."""
        if scope.everything:
            return list(self._places.get(site, ()))
        return list({node for row in self._own(scope) for place, node in row.places if place == site})

    def lane(self, site: str, node: str, scope: Scope, planned: Iterable[Row], whole: bool) -> Lane:
        """One node with its windows, and the jobs that wait for it.

        Args:
            site: Where it is.
            node: Its name; "" for windows that have none yet.
            scope: Whose windows to show.
            planned: Jobs expected to start there.
            whole: Whether to tell what the node has and how much of it is used.
        """
        held = self._places.get(site, {}).get(node, {})
        bars = [self._seen(bar) for key, bars in held.items() if key.partition("/")[0] in scope for bar in bars]
        bars += [self._awaited(row) for row in planned if row.summary.namespace in scope]
        observed, use = self._view.nodes.get(node), self._view.reservations.node(node)
        gpus = use.capacity.gpus if use.capacity is not None else 0
        return Lane(
            node,
            observed is not None and observed.ready,
            gpus if whole else None,
            use.used.gpus if whole else None,
            sorted(bars, key=lambda bar: (bar.start or _LATEST, bar.namespace, bar.job, bar.attempt)),
        )

    async def awaited(self) -> dict[str, dict[str, list[Row]]]:
        """Jobs that wait, by the site and the node where they are expected to start."""
        found: dict[str, dict[str, list[Row]]] = {}
        async for rows in portions(self._groups["waiting"].values(), MOST_ROWS):
            for row in rows:
                expectation = self._expected(row.key)
                if expectation is not None:
                    found.setdefault(expectation.site, {}).setdefault(expectation.node, []).append(row)
        return found

    def _own(self, scope: Scope) -> Iterator[Row]:
        return (row for name in scope.namespaces for row in self._namespaces.get(name, {}).values())

    def _awaited(self, row: Row) -> Bar:
        told = row.summary
        start, end = told.planned_start, told.planned_completion
        return Bar(told.namespace, told.name, 0, 0, row.gpus, "", start, end, "Expected")

    def _seen(self, bar: Bar) -> Bar:
        """With the state of its pod."""
        if bar.state != "Open":
            return bar
        pod = self._view.pods.get(f"{bar.namespace}/{pod_name(bar.job, ROLE_WORKER, bar.index, bar.attempt)}")
        runs = pod is not None and pod.status.phase == "Running"
        return msgspec.structs.replace(bar, state="Running" if runs else "Planned")

    def _note_job(self, key: str, old: TrainingJob | None, new: TrainingJob | None) -> None:
        before = self.rows.pop(key, None)
        if before is not None:
            self._drop(before)
        if new is not None:
            row = self.rows[key] = self._row(new, before)
            self._namespaces.setdefault(row.summary.namespace, {})[key] = row
            self._groups[_group(row.summary.phase)][key] = row
            for (site, node), bars in row.places.items():
                self._places.setdefault(site, {}).setdefault(node, {})[key] = bars

    def _drop(self, row: Row) -> None:
        self._groups[_group(row.summary.phase)].pop(row.key, None)
        others = self._namespaces[row.summary.namespace]
        del others[row.key]
        if not others:
            del self._namespaces[row.summary.namespace]
        for site, node in row.places:
            nodes = self._places[site]
            del nodes[node][row.key]
            if not nodes[node]:
                del nodes[node]
            if not nodes:
                del self._places[site]

    def _row(self, job: TrainingJob, before: Row | None) -> Row:
        generation = (job.metadata.uid, job.metadata.generation)
        gpus = before.gpus if before is not None and before.generation == generation else self._gpus(job)
        told = summary(job)
        over = told.phase in OVER
        places: dict[tuple[str, str], tuple[Bar, ...]] = {}
        for site, node, bar in () if over else _bars(job, gpus):
            places[site, node] = (*places.get((site, node), ()), bar)
        return Row(job.key, generation, gpus, told, job.status.completion_time, places)

    def _gpus(self, job: TrainingJob) -> int:
        try:
            return template_shape(job.spec.workers.template, self._view.gpu_resource).requests.gpus
        except ValueError:  # such a job gets no plan, and its condition says why
            return 0


def _start(row: Row) -> tuple[datetime, str]:
    return row.summary.planned_start or _LATEST, row.key


def _end(row: Row) -> tuple[datetime, str]:
    return row.ended or _EARLIEST, row.key


def natural(name: str) -> list[Any]:
    """For sorting: ``n2`` before ``n10``."""
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d{1,18})", name)]


def _bars(job: TrainingJob, gpus: int) -> Iterator[tuple[str, str, Bar]]:
    for window in job.status.plan.workers if job.status.plan else ():
        bar = Bar(
            job.metadata.namespace,
            job.metadata.name,
            window.index,
            window.attempt,
            gpus,
            format_chunks(window.chunks),
            window.start,
            window.end,
            window.state,
        )
        yield window.site, window.node or "", bar


def _group(phase: str) -> str:
    return next((group for group, phases in GROUPS.items() if phase in phases), "waiting")
