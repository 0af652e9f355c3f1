"""Generator of docs/reference/metrics.md: every metric of each process, from their registries."""

from collections.abc import Iterable

from tranche.metrics.process import Definition, ProcessMetrics
from tranche.metrics.scheduler import API, EXTENDER, PLANNER, Metrics
from tranche_operator.metrics import OperatorMetrics

_HEAD = """\
# Metrics

Generated from the registries by `make generate`; do not edit. Each process serves its own at `/metrics`: in the chart
the planner on port 10264, the extender on 10267, the API on 10268 (`--metrics-port` each), and `tranche-operator` on
8081 (`--health-port`). On one machine, `tranche scheduler` has `--metrics-port` for the planner and
`--api-metrics-port`; the extender serves its metrics on `--port` too. The ServiceMonitor covers all. Labels are
bounded: namespaces, sites, reasons; no series has a job's name.

The planner of a replica that does not lead has no metrics of plans and of jobs that end: these are the leader's alone,
from when it took over. For a job that an earlier leader had planned, the first planned completion and interval are
those of its plan at that time, so that errors look smaller after a change of the leader. Histograms of jobs have 20
buckets that double from 1 s to six days. How to read them: [dashboards.md](../how-to/dashboards.md). The alerts:
[runbook.md](../how-to/runbook.md).

A scrape of all series of a scheduler with 5,000 nodes, 2,000 jobs and 50 namespaces with jobs takes some 40 ms of CPU
time, in portions of 3 to 5 ms at most, between which the process does other work (`benchmarks/page_speed.py --jobs
2000`). Its size, 270 kB then, grows with the namespaces that have jobs: 72 series each.
"""
_TABLE = "| name | type | labels | meaning |\n|---|---|---|---|\n"


def registries() -> dict[str, ProcessMetrics]:
    """Return the registry of each process."""
    processes = {name: Metrics(parts=(name,)) for name in (EXTENDER, PLANNER, API)}
    return {**processes, "operator": OperatorMetrics()}


def definitions() -> dict[str, dict[str, Definition]]:
    """Return the metric definitions by process and name."""
    return {process: {d.name: d for d in metrics.definitions} for process, metrics in registries().items()}


def series() -> frozenset[str]:
    """Return the names of all series that dashboards and rules may use."""
    own = {name for known in definitions().values() for d in known.values() for name in d.series}
    return frozenset(own | {"process_resident_memory_bytes", "process_start_time_seconds", "process_cpu_seconds_total"})


def metrics_page() -> str:
    """Return the text of docs/reference/metrics.md."""
    known = definitions()
    everywhere = set.intersection(*map(set, known.values()))
    ours = {name: known[name] for name in (EXTENDER, PLANNER, API)}
    shared = set.intersection(*map(set, ours.values())) - everywhere
    parts = [
        _section("Of all processes", (known[PLANNER][name] for name in sorted(everywhere))),
        _section("Of extender, planner and API", (known[PLANNER][name] for name in sorted(shared))),
    ]
    for process, found in known.items():
        own = (d for name, d in found.items() if name not in everywhere | shared)
        parts.append(_section(f"Of the {'API' if process == API else process}", own))
    process = "All also have the `process_…` metrics of Prometheus clients on Linux: memory, CPU time, files, start.\n"
    return "\n".join([_HEAD, *parts, process])


def _section(title: str, found: Iterable[Definition]) -> str:
    rows = (f"| `{d.name}` | {d.kind} | {', '.join(d.labels)} | {d.text} |\n" for d in found)
    return f"## {title}\n\n{_TABLE}{''.join(rows)}"
