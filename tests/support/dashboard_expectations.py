"""Expected content of every panel of every dashboard for a run, from the TrainingJobs and pods of that run alone."""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from statistics import mean
from typing import Any

from support.dashboard_run import CHUNK_BYTES, GPUS, Run, Versions
from support.prometheus_server import Labels
from tranche.kube.api.names import GPU_RESOURCE
from tranche.metrics.scheduler import COMPLETION_BUCKETS, HORIZONS
from tranche.model.plan import Interval

Values = dict[Labels, float]
Status = dict[str, Any]
ACTIVE = ("Waiting", "Starting", "Running", "Suspended")
SENTENCES = {
    "Room": r"^(waits for .* (at|behind) |next in the queue: )",
    "Data": r"^its data are on the way",
    "Size": r"^no node has",
    "Unknown": r"has not placed it yet$",
    "Opened": r"^\d+ workers? \(",
    "Held": r"^held",
    "Avoided": r"is avoided",
}
"""Patterns of the reasons that a run meets; unmatched explanations count under themselves, so that the test fails."""


def moment(text: str) -> float:
    """Return seconds of the clock."""
    return datetime.fromisoformat(text).astimezone(UTC).timestamp()


def labels(**known: str) -> Labels:
    return tuple(sorted(known.items()))


class Facts:
    """Facts about a run."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.last = {key: versions[-1][1] for key, versions in run.jobs.items()}
        self.succeeded = [job for job in self.last.values() if self.status(job).get("phase") == "Succeeded"]
        self.changes = sorted(at for versions in [*run.jobs.values(), *run.pods.values()] for at, _ in versions)

    # ---- completed jobs

    @staticmethod
    def status(job: Mapping[str, Any]) -> Status:
        return dict(job.get("status", {}))

    def namespaces(self) -> set[str]:
        return {job["metadata"]["namespace"] for job in self.last.values()}

    def completion(self, job: Mapping[str, Any]) -> float:
        """Return seconds from creation to success."""
        return moment(job["status"]["completionTime"]) - moment(job["metadata"]["creationTimestamp"])

    def first_planned(self, job: Mapping[str, Any]) -> float | None:
        """Return seconds from creation to the completion in the first plan with an estimate; None without any."""
        first = self._first_plan(job).get("estimatedCompletion")
        return max(0.0, moment(first) - moment(job["metadata"]["creationTimestamp"])) if first else None

    def place(self, job: Mapping[str, Any]) -> str:
        """Return the place of the completion in the interval of the first plan with an estimate; "" without any."""
        interval = self._first_plan(job).get("completionInterval")
        if interval is None:
            return ""
        earliest, latest = moment(interval["earliest"]), moment(interval["latest"])
        return Interval(earliest, latest).verdict(moment(job["status"]["completionTime"]))

    def _first_plan(self, job: Mapping[str, Any]) -> Status:
        key = f"{job['metadata']['namespace']}/{job['metadata']['name']}"
        plans = (self.status(version).get("plan", {}) for _, version in self.run.jobs[key])
        return next((plan for plan in plans if plan.get("estimatedCompletion")), {})

    def queueing(self, namespace: str) -> list[float]:
        """Return seconds from creation to the first pod of every job that has started."""
        return [
            moment(job["status"]["startTime"]) - moment(job["metadata"]["creationTimestamp"])
            for job in self.last.values()
            if job["metadata"]["namespace"] == namespace and self.status(job).get("startTime")
        ]

    def by_namespace(self, of: Callable[[Mapping[str, Any]], float]) -> dict[str, list[float]]:
        found: dict[str, list[float]] = {}
        for job in self.succeeded:
            found.setdefault(job["metadata"]["namespace"], []).append(of(job))
        return found

    def total(self, field: str) -> float:
        """Return the sum of a field of status.progress over all jobs."""
        return float(sum(self.status(job).get("progress", {}).get(field, 0) for job in self.last.values()))

    # ---- state at a moment

    def jobs_at(self, at: float) -> list[dict[str, Any]]:
        return list(_at(self.run.jobs.values(), at))

    def pods_at(self, at: float) -> list[dict[str, Any]]:
        return list(_at(self.run.pods.values(), at))

    def between(self, start: float, end: float) -> Iterator[float]:
        """Yield moments between which nothing changed: the start, and just after each change."""
        yield start
        yield from self.changes[bisect_right(self.changes, start) : bisect_right(self.changes, end)]

    def phases(self, at: float) -> Values:
        tally = Counter(_phase(job) for job in self.jobs_at(at))
        return {labels(phase=phase): float(tally[phase]) for phase in ACTIVE}

    def waits(self, at: float) -> Values:
        waiting = (self.status(job) for job in self.jobs_at(at) if _phase(job) == "Waiting")
        tally = Counter(_reason(status.get("plan", {}).get("explanation", "")) for status in waiting)
        return {labels(reason=reason): float(count) for reason, count in tally.items()}

    def planned_starts(self, at: float) -> Values:
        plans = (self.status(job).get("plan", {}) for job in self.jobs_at(at) if _phase(job) == "Waiting")
        starts = [moment(plan["estimatedStart"]) - at for plan in plans if plan.get("estimatedStart")]
        found = {labels(within=f"{h:g}"): float(sum(start <= h for start in starts)) for h in HORIZONS}
        return {**found, labels(within="+Inf"): float(len(starts))}

    def oldest(self, at: float) -> Values:
        waiting = [job for job in self.jobs_at(at) if _phase(job) == "Waiting"]
        created = [moment(job["metadata"]["creationTimestamp"]) for job in waiting]
        return {(): at - min(created) if created else 0.0}

    def gpus(self, at: float) -> Values:
        return {labels(site=site, resource=GPU_RESOURCE): float(count) for site, count in GPUS.items()}

    def used(self, at: float) -> Values:
        used = Counter[str]()
        for pod in self.pods_at(at):
            if pod["spec"].get("nodeName") and pod.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
                used[pod["spec"]["nodeName"].rpartition("-")[0]] += _gpus(pod["spec"])
        return {labels(site=site, resource=GPU_RESOURCE): float(used[site]) for site in GPUS}

    def utilisation(self, at: float) -> Values:
        return {key: count / GPUS[dict(key)["site"]] for key, count in self.used(at).items()}

    def planned(self, at: float) -> Values:
        bound = {pod["metadata"]["name"] for pod in self.pods_at(at) if pod["spec"].get("nodeName")}
        planned = Counter[str]()
        for job in self.jobs_at(at):
            for window in self.status(job).get("plan", {}).get("workers", ()):
                pod = f"{job['metadata']['name']}-worker-{window['index']}-{window['attempt']}"
                if window.get("state", "Open") == "Open" and pod not in bound and _phase(job) in ACTIVE:
                    planned[window["site"]] += _gpus(job["spec"]["workers"]["template"]["spec"])
        return {labels(site=site, resource=GPU_RESOURCE): float(planned[site]) for site in GPUS}

    # ---- copies and pods

    def copies(self) -> Counter[tuple[str, str]]:
        """Return the number of chunks given to staging pods, by link."""
        given: dict[tuple[str, int], tuple[str, str, int]] = {}
        for key, versions in self.run.jobs.items():
            for _, job in versions:
                for staging in self.status(job).get("plan", {}).get("staging", ()):
                    if staging.get("attempt"):
                        link = (job["spec"]["data"]["site"], staging["site"])
                        given[key, staging["attempt"]] = (*link, _count(staging.get("chunks", "")))
        found = Counter[tuple[str, str]]()
        for source, target, chunks in given.values():
            found[source, target] += chunks
        return found

    def copied(self, size: float = 1.0) -> Values:
        """Return the copies times a size; a declared and unused link has none."""
        links = [("edge-a", "edge-b"), ("edge-b", "edge-a")]
        return {labels(source=s, target=t): self.copies()[s, t] * size for s, t in links}

    def copied_to(self, size: float) -> Values:
        """Return the same by site."""
        arrived = Counter[str]()
        for (_, target), chunks in self.copies().items():
            arrived[target] += chunks
        return {labels(site=site, tier="Edge"): arrived[site] * size for site in GPUS}

    def used_by_site(self, field: str) -> Values:
        """Return the sum of a field of status.progress.sites over all jobs."""
        found = Counter[str]()
        for job in self.last.values():
            for site in self.status(job).get("progress", {}).get("sites", ()):
                found[site["site"]] += site.get(field, 0)
        return {labels(site=site, tier="Edge"): float(amount) for site, amount in found.items()}

    def stopped(self) -> list[float]:
        """Return the seconds that workers had run which were stopped before their end; both times in whole seconds."""
        found = []
        for versions in self.run.pods.values():
            states = [s["state"] for _, pod in versions for s in pod.get("status", {}).get("containerStatuses", ())]
            ends = [state["terminated"] for state in states if "terminated" in state]
            if ends and ends[-1]["exitCode"] in (143, 137) and ends[-1].get("startedAt"):
                found.append(moment(ends[-1]["finishedAt"]) - moment(ends[-1]["startedAt"]))
        return found

    def starts(self) -> list[float]:
        """Return seconds from the opening of a window to its worker's start, of every worker that started."""
        found = []
        for pod, started in self._started():
            names = pod["metadata"]["labels"]
            key = f"{pod['metadata']['namespace']}/{names['tranche.dev/job']}"
            found.append(started - self.run.openings[key, int(names["tranche.dev/attempt"])])
        return found

    def _started(self) -> Iterator[tuple[dict[str, Any], float]]:
        """Yield workers, and when the watch first showed them running."""
        for versions in self.run.pods.values():
            for at, pod in versions:
                states = [s["state"] for s in pod.get("status", {}).get("containerStatuses", ())]
                if pod["metadata"]["labels"].get("tranche.dev/role") == "worker" and any(
                    "running" in s for s in states
                ):
                    yield pod, at
                    break


def quantile(share: float, values: Iterable[float]) -> float:
    """Return the quantile as Prometheus computes it from our buckets."""
    known = list(values)
    counts = [sum(value <= bound for value in known) for bound in COMPLETION_BUCKETS]
    rank = share * len(known)
    position = next(n for n, count in enumerate(counts) if count >= rank)
    low, below = (0.0, 0) if position == 0 else (COMPLETION_BUCKETS[position - 1], counts[position - 1])
    return low + (COMPLETION_BUCKETS[position] - low) * (rank - below) / (counts[position] - below)


def averages(found: Mapping[str, Iterable[float]], label: str) -> Values:
    return {labels(**{label: name}): mean(values) for name, values in found.items()}


def _at(all_versions: Iterable[Versions], at: float) -> Iterator[dict[str, Any]]:
    for versions in all_versions:
        position = bisect_right([moment for moment, _ in versions], at)
        if position and not (position == len(versions) and _is_gone(versions[-1][1])):
            yield versions[position - 1][1]


def _is_gone(thing: Mapping[str, Any]) -> bool:
    """Return whether an object is deleted: its last version in a watch has no finalizers."""
    return bool(thing["metadata"].get("deletionTimestamp")) and not thing["metadata"].get("finalizers")


def _phase(job: Mapping[str, Any]) -> str:
    return str(job.get("status", {}).get("phase", "Waiting"))


def _reason(explanation: str) -> str:
    if not explanation:
        return "Unknown"
    return next((reason for reason, form in SENTENCES.items() if re.search(form, explanation)), explanation)


def _gpus(spec: Mapping[str, Any]) -> int:
    return sum(int(c["resources"]["requests"].get(GPU_RESOURCE, 0)) for c in spec["containers"])


def _count(chunks: str) -> int:
    """Return the number of chunks in ``0-3,7``."""
    ranges = ([int(n) for n in part.split("-")] for part in chunks.split(",") if part)
    return sum(ends[-1] - ends[0] + 1 for ends in ranges)


BYTES = float(CHUNK_BYTES)
__all__ = ["BYTES", "Facts", "Values", "averages", "labels", "quantile"]
