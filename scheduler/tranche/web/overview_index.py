"""Index of jobs and windows for the overview page; it follows the watch, so that requests do not scan all jobs."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from heapq import nlargest, nsmallest
from typing import Any, Protocol

import msgspec

from tranche.auth.user_access import Scope
from tranche.extender.view import View, ViewSources
from tranche.kube.api.names import ROLE_WORKER, pod_name
from tranche.kube.api.resources import TrainingJob
from tranche.kube.api.timestamp import whole_second
from tranche.kube.convert.pod_shape import template_shape
from tranche.model import PlannedWindow, format_chunks
from tranche.model.explanation_text import ASSUMED_DURATION
from tranche.runtime.batching import portions
from tranche.web.job_views import JobSummary, summary

OVER = ("Succeeded", "Failed")
GROUPS = {"waiting": ("Waiting", "Suspended"), "running": ("Starting", "Running"), "finished": OVER}
"""Groups of the page, by phase."""
MAX_ROWS = 2000
"""Maximum rows processed before yielding to the event loop."""
DEFAULT_SORTS = {"waiting": "start", "running": "start", "finished": "-completed"}
SORT_KEYS = ("name", "created", "start", "completion", "completed", "jct")
_LATEST = datetime.max.replace(tzinfo=UTC)


class Expectation(Protocol):
    """Forecast place of a waiting job."""

    @property
    def site(self) -> str:
        """Site of the first worker; "" if unknown."""

    @property
    def node(self) -> str:
        """Node of the first worker; "" if unknown."""


Expected = Callable[[str], Expectation | None]
"""Function from a job key to its forecast; None if there is none."""


def nothing_expected(key: str) -> None:
    """Return None, without a planner."""


PlannedWindows = Callable[[str], Sequence[PlannedWindow]]
"""Function from a site to the windows that the forecast opens there later."""


def nothing_planned(site: str) -> tuple[PlannedWindow, ...]:
    """Return no windows, without a planner."""
    return ()


@dataclass(frozen=True, slots=True)
class Selection:
    """Selection and order of the jobs of a group."""

    find: str = ""
    """Part of ``namespace/name``."""
    phase: str = ""
    """Phase; "" for all."""
    sort: str = ""
    """One of `SORT_KEYS`, with a leading "-" for descending order; "" for the default of the group."""
    limit: int = 50


class Bar(msgspec.Struct, frozen=True, rename="camel"):
    """Bar of the timeline: a window, or the expected start of a waiting job."""

    namespace: str
    job: str
    index: int
    attempt: int
    gpus: int
    chunks: str
    start: datetime | None
    end: datetime | None
    state: str
    """Running, Planned (the pod does not run yet), Closing (the pod must stop), Later (a window that the forecast opens
    later) or Expected (for a waiting job whose windows are not known)."""
    workers: int = 1
    """Number of workers, above 1 for the members of a gang on one node."""
    assumed: bool = False
    """Whether the duration of the job is assumed, and with it the end of the bar."""


class Lane(msgspec.Struct, frozen=True, rename="camel"):
    """Timeline of one node; gpus and usedGpus are null for users who may not read sites."""

    node: str
    ready: bool
    gpus: int | None
    used_gpus: int | None
    bars: list[Bar]


class Use(msgspec.Struct, frozen=True, rename="camel"):
    """Use of one site by jobs, as recorded in their statuses."""

    gpu_seconds: int = 0
    copied_bytes: int = 0
    in_vain_bytes: int = 0

    def plus(self, other: "Use", sign: int = 1) -> "Use":
        """Return the sum; with `sign` -1, the difference."""
        return Use(
            self.gpu_seconds + sign * other.gpu_seconds,
            self.copied_bytes + sign * other.copied_bytes,
            self.in_vain_bytes + sign * other.in_vain_bytes,
        )


class Totals(msgspec.Struct, frozen=True, rename="camel"):
    """Numbers of jobs and GPUs."""

    waiting: int = 0
    suspended: int = 0
    running: int = 0
    """Running jobs, and those whose first pods start."""
    gpus: int = 0
    """GPUs in windows of these jobs."""
    succeeded: int = 0
    """Jobs that succeeded since the given time."""
    failed: int = 0
    """Jobs that failed since the given time."""
    average_jct: float | None = None
    """Average JCT of those that succeeded, in seconds; None if there are none."""


_UNUSED = Use()


@dataclass(frozen=True, slots=True)
class Row:
    """Index entry of one job."""

    key: str
    generation: tuple[str, int]
    gpus: int
    """GPUs of one worker."""
    summary: JobSummary
    ended: datetime | None
    places: Mapping[tuple[str, str], tuple[Bar, ...]]
    """Windows by (site, node); the node is "" at an unlimited site."""
    uses: Mapping[str, Use]
    """Use by site."""
    held_gpus: int
    """GPUs in its windows."""

    @property
    def assumed(self) -> bool:
        """Whether the duration of the job is assumed."""
        return ASSUMED_DURATION in self.summary.explanation


class Board:
    """Index of all jobs by group and of their windows by node, updated from watch changes."""

    def __init__(
        self,
        view: View,
        watches: ViewSources,
        expected: Expected = nothing_expected,
        planned: PlannedWindows = nothing_planned,
    ) -> None:
        self._view = view
        self._expected = expected
        self._planned = planned
        self.rows: dict[str, Row] = {}
        self._groups: dict[str, dict[str, Row]] = {group: {} for group in GROUPS}
        self._namespaces: dict[str, dict[str, Row]] = {}
        self._places: dict[str, dict[str, dict[str, tuple[Bar, ...]]]] = {}
        """Bars by site, node and job key."""
        self._uses: dict[str, dict[str, Use]] = {}
        """Sums over the jobs of a namespace, by site."""
        watches.jobs.subscribe(self._note_job)

    @property
    def namespaces(self) -> list[str]:
        """Namespaces that have jobs, sorted."""
        return sorted(self._namespaces)

    @property
    def sites(self) -> list[str]:
        """Sites that have windows, sorted."""
        return sorted(self._places)

    async def jobs(self, group: str, scope: Scope, selection: Selection) -> tuple[int, list[JobSummary]]:
        """Return the number of selected jobs of a group, and the first of them in the selected order.

        Jobs without a value come last in both directions, by name.
        """
        find, phase, limit = selection.find.lower(), selection.phase, selection.limit
        sort = selection.sort or DEFAULT_SORTS[group]
        value_of, first_of = _VALUES[sort.removeprefix("-")], nlargest if sort.startswith("-") else nsmallest
        with_value: list[tuple[Any, str, Row]] = []
        without_value: list[tuple[str, Row]] = []
        async for rows in portions(self._groups[group].values(), MAX_ROWS):
            if not scope.everything:
                rows = [row for row in rows if row.summary.namespace in scope.namespaces]
            if find or phase:
                rows = [row for row in rows if find in row.key and phase in ("", row.summary.phase)]
            with_value += [(value, row.key, row) for row in rows if (value := value_of(row)) is not None]
            without_value += [(row.key, row) for row in rows if value_of(row) is None]
        first = [row for _, _, row in first_of(limit, with_value)]  # keys differ, so that rows are not compared
        first += [row for _, row in nsmallest(limit - len(first), without_value)]
        return len(with_value) + len(without_value), [row.summary for row in first]

    async def totals(self, scope: Scope, since: datetime | None) -> Totals:
        """Count the jobs of the scope; finished jobs count if they ended at `since` or later."""
        counts: Counter[str] = Counter()
        jct, begin = 0.0, since or datetime.min.replace(tzinfo=UTC)
        members: dict[str, list[Row]] = {group: [] for group in GROUPS}
        for row in () if scope.everything else self._own(scope):
            members[_group(row.summary.phase)].append(row)
        for group in GROUPS:
            chosen = self._groups[group].values() if scope.everything else members[group]
            async for rows in portions(chosen, MAX_ROWS):
                if group == "finished":
                    rows = [row for row in rows if row.ended is not None and row.ended >= begin]
                    jct += sum(_jct(row) or 0.0 for row in rows if row.summary.phase == "Succeeded")
                counts["gpus"] += sum(row.held_gpus for row in rows) if group == "running" else 0
                counts.update(row.summary.phase for row in rows)
        succeeded = counts["Succeeded"]
        return Totals(
            waiting=counts["Waiting"],
            suspended=counts["Suspended"],
            running=counts["Starting"] + counts["Running"],
            gpus=counts["gpus"],
            succeeded=succeeded,
            failed=counts["Failed"],
            average_jct=jct / succeeded if succeeded else None,
        )

    async def list_jobs(self, scope: Scope, phase: str, after: str, limit: int) -> list[JobSummary]:
        """List at most `limit` jobs after the key `after`, by namespace and name; phase "" means any."""
        listed: list[JobSummary] = []
        async for keys in portions(sorted(key for key in self.rows if key > after), MAX_ROWS):
            summaries = (self.rows[key].summary for key in keys if key in self.rows)
            listed += [summary for summary in summaries if summary.namespace in scope and phase in ("", summary.phase)]
            if len(listed) >= limit:
                break
        return listed[:limit]

    def own_sites(self, scope: Scope) -> list[str]:
        """Return the sites with windows in the scope, and those that jobs of the scope have used."""
        if scope.everything:
            return sorted({*self.sites, *self.uses(scope)})
        return sorted({*(site for row in self._own(scope) for site, _ in row.places), *self.uses(scope)})

    def uses(self, scope: Scope) -> dict[str, Use]:
        """Return the use of each site by the jobs of the scope that exist."""
        by_site: dict[str, Use] = {}
        for namespace in self._uses if scope.everything else scope.namespaces:
            for site, use in self._uses.get(namespace, {}).items():
                by_site[site] = by_site.get(site, _UNUSED).plus(use)
        return dict(sorted(by_site.items()))

    def own_nodes(self, site: str, scope: Scope) -> list[str]:
        """Return the nodes of a site with windows in the scope."""
        if scope.everything:
            return list(self._places.get(site, ()))
        return list({node for row in self._own(scope) for place, node in row.places if place == site})

    def lane(
        self, site: str, node: str, scope: Scope, planned: Iterable[Row], later: Iterable[PlannedWindow], whole: bool
    ) -> Lane:
        """Build the timeline of one node with its windows and the jobs expected there.

        Args:
            site: Site of the node.
            node: Name of the node; "" for windows without a node.
            scope: Namespaces to show.
            planned: Jobs expected to start there.
            later: Windows that the forecast opens there.
            whole: Whether to include capacity and usage of the node.
        """
        bars_by_job = self._places.get(site, {}).get(node, {})
        bars = [self._seen(bar) for key, bars in bars_by_job.items() if key.partition("/")[0] in scope for bar in bars]
        bars += [self._awaited(row) for row in planned if row.summary.namespace in scope]
        bars += [bar for window in later if _namespace(window) in scope for bar in self._later(window)]
        observed, use = self._view.nodes.get(node), self._view.reservations.node(node)
        gpus = use.capacity.gpus if use.capacity is not None else 0
        return Lane(
            node,
            observed is not None and observed.ready,
            gpus if whole else None,
            use.used.gpus if whole else None,
            sorted(bars, key=lambda bar: (bar.start or _LATEST, bar.namespace, bar.job, bar.attempt)),
        )

    def later(self, site: str) -> dict[str, list[PlannedWindow]]:
        """Return the windows that the forecast opens at a site, by node."""
        by_node: dict[str, list[PlannedWindow]] = {}
        for window in self._planned(site):
            by_node.setdefault(window.node, []).append(window)
        return by_node

    async def awaited(self) -> dict[str, dict[str, list[Row]]]:
        """Return the waiting jobs whose windows are not known, by expected site and node."""
        planned: dict[str, frozenset[str]] = {}
        jobs: dict[str, dict[str, list[Row]]] = {}
        async for rows in portions(self._groups["waiting"].values(), MAX_ROWS):
            for row in rows:
                expectation = self._expected(row.key)
                if expectation is None:
                    continue
                site = expectation.site
                if site not in planned:
                    planned[site] = frozenset(window.job for window in self._planned(site))
                if row.key not in planned[site]:
                    jobs.setdefault(expectation.site, {}).setdefault(expectation.node, []).append(row)
        return jobs

    def _own(self, scope: Scope) -> Iterator[Row]:
        return (row for name in scope.namespaces for row in self._namespaces.get(name, {}).values())

    def _awaited(self, row: Row) -> Bar:
        job = row.summary
        start, end = job.planned_start, job.planned_completion
        return Bar(job.namespace, job.name, 0, 0, row.gpus, "", start, end, "Expected", assumed=row.assumed)

    def _later(self, window: PlannedWindow) -> Iterator[Bar]:
        row = self.rows.get(window.job)
        if row is not None:
            namespace, _, name = window.job.partition("/")
            gpus = row.gpus * window.workers
            start, end = whole_second(window.start), whole_second(window.end)
            yield Bar(namespace, name, 0, 0, gpus, window.chunks, start, end, "Later", window.workers, row.assumed)

    def _seen(self, bar: Bar) -> Bar:
        """Set the state of a bar from its pod."""
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
            self._add_uses(row, 1)
            for (site, node), bars in row.places.items():
                self._places.setdefault(site, {}).setdefault(node, {})[key] = bars

    def _add_uses(self, row: Row, sign: int) -> None:
        sums = self._uses.setdefault(row.summary.namespace, {}) if row.uses else {}
        for site, use in row.uses.items():
            sums[site] = sums.get(site, _UNUSED).plus(use, sign)
            if sums[site] == _UNUSED:
                del sums[site]
        if row.uses and not sums:
            del self._uses[row.summary.namespace]

    def _drop(self, row: Row) -> None:
        self._groups[_group(row.summary.phase)].pop(row.key, None)
        self._add_uses(row, -1)
        rows = self._namespaces[row.summary.namespace]
        del rows[row.key]
        if not rows:
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
        job_summary = summary(job)
        over = job_summary.phase in OVER
        places: dict[tuple[str, str], tuple[Bar, ...]] = {}
        for site, node, bar in () if over else _bars(job, gpus):
            places[site, node] = (*places.get((site, node), ()), bar)
        held_gpus = gpus * sum(map(len, places.values()))
        return Row(job.key, generation, gpus, job_summary, job.status.completion_time, places, _uses_of(job), held_gpus)

    def _gpus(self, job: TrainingJob) -> int:
        try:
            return template_shape(job.spec.workers.template, self._view.gpu_resources).requests.gpus
        except ValueError:  # such a job gets no plan, and its condition says why
            return 0


def _jct(row: Row) -> float | None:
    created = row.summary.created
    return (row.ended - created).total_seconds() if row.ended is not None and created is not None else None


_VALUES: Mapping[str, Callable[[Row], Any]] = {
    "name": lambda row: row.key,
    "created": lambda row: row.summary.created,
    "start": lambda row: row.summary.planned_start,
    "completion": lambda row: row.summary.planned_completion,
    "completed": lambda row: row.ended,
    "jct": _jct,
}
"""Value to sort by, None if the job has none, by sort key."""


def _namespace(window: PlannedWindow) -> str:
    return window.job.partition("/")[0]


def natural(name: str) -> list[Any]:
    """Return a sort key with natural order: ``n2`` before ``n10``."""
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d{1,18})", name)]


def _bars(job: TrainingJob, gpus: int) -> Iterator[tuple[str, str, Bar]]:
    plan = job.status.plan
    for window in plan.workers if plan else ():
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
            assumed=plan is not None and ASSUMED_DURATION in plan.explanation,
        )
        yield window.site, window.node or "", bar


def _uses_of(job: TrainingJob) -> dict[str, Use]:
    written = job.status.progress.sites if job.status.progress else ()
    uses = {site.site: Use(site.gpu_seconds, site.copied_bytes, site.in_vain_bytes) for site in written}
    return {site: use for site, use in uses.items() if use != _UNUSED}


def _group(phase: str) -> str:
    return next((group for group, phases in GROUPS.items() if phase in phases), "waiting")
