"""Health of nodes: which take no new pods for a time, because pods of different jobs failed or were refused there.

A pod has a problem if it fails or its node refuses it. A node is excluded if pods of several jobs had a problem on it,
and at least half of its last pods did. A job, or a namespace, whose pods have problems on most of their nodes does not
count, unless the nodes explain that better. An exclusion ends with a trial: the node takes pods of one job. If they
train, the node has recovered. If they have a problem, another job tries the node; after problems of several jobs in one
trial, the node is excluded for twice as long. A trial without a result ends when the problems do not count any more. At
most a share of a site's nodes is excluded at the same time, so that jobs that crash cannot close a site.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from copy import copy as shallow_copy
from dataclasses import dataclass, field
from enum import Enum
from math import inf

NAMESPACE_NODES = 3
"""Number of nodes with pods of a namespace from which problems on most of them count as the namespace's own."""
JOB_NODES = 2
"""The same number for a job."""
LONG_SECONDS = 30.0
"""Shortest time after which a running pod is a sign that the pods of its namespace train."""
RECHECK_SECONDS = 1.0
"""Time until a namespace is examined again for problems that depend on the node, which reads all workers."""
LONGEST_DETAIL = 200
"""Maximum length of a quoted message of a kubelet in characters; longer ones are cut."""


@dataclass(frozen=True, slots=True)
class HealthSettings:
    """Settings for the exclusion of nodes."""

    jobs: int = 2
    """Number of different jobs whose pods must have had problems on an excluded node; 0: nodes are never excluded."""
    pods: int = 10
    """Number of last pods of a node that are considered; at least half of them must have had a problem."""
    memory_seconds: float = 3600.0
    """Time after which a problem is not considered any more, a trial without a result ends, and a recovered node counts
    as new."""
    first_seconds: float = 300.0
    """First time of exclusion in seconds; it doubles with each trial in which pods of several jobs fail."""
    longest_seconds: float = 3600.0
    """Longest time of exclusion in seconds."""
    proof_seconds: float = 300.0
    """Time in seconds after which a pod that still trains has passed the trial of its node."""
    site_share: float = 0.25
    """Largest share of a site's nodes that is excluded at the same time; one node is always allowed.

    The only node of a site is excluded only for pods of several namespaces.
    """

    def exclusion_seconds(self, before: int) -> float:
        """Return the time of exclusion after `before` earlier ones in a row."""
        return min(self.first_seconds * 2.0 ** min(before, 30), self.longest_seconds)


@dataclass(slots=True, eq=False)
class PodResult:
    """Result of one pod of ours on a node."""

    job: str
    """Key of its job."""
    at: float
    problem: str = ""
    """How it failed or was refused, in a few words without names of jobs; empty if it trained."""
    counted: bool = False
    """Whether it counts towards the back-off limit of its job."""
    lasted: float = 0.0
    """Time in seconds for which it ran."""

    @property
    def namespace(self) -> str:
        """Namespace of its job."""
        return self.job.partition("/")[0]


@dataclass(frozen=True, slots=True)
class RunningWorker:
    """Worker that trains."""

    namespace: str
    node: str
    since: float
    seconds: float
    """Time for which it has trained."""


class ExclusionPhase(Enum):
    """State of the exclusion of a node."""

    EXCLUDED = "Excluded"
    """No pods of ours start there."""
    TRIAL = "Trial"
    """Pods of one job may start there."""
    RECOVERED = "Recovered"
    """A pod has trained there; the next exclusion is longer than the last one if it follows soon."""


@dataclass(slots=True, eq=False)
class Exclusion:
    """Exclusion of one node."""

    node: str
    site: str
    since: float
    until: float
    """When the next trial begins; for a recovered node, when the exclusion is forgotten."""
    jobs: int
    """Number of different jobs whose pods had a problem on the node."""
    namespaces: int
    """Number of their namespaces."""
    detail: str
    """Problem of the last of these pods."""
    count: int = 1
    """Number of exclusions in a row, this one included."""
    phase: ExclusionPhase = ExclusionPhase.EXCLUDED
    trial_job: str = ""
    """Key of the job whose pods run there on trial; empty if there is none."""
    uid: str = ""
    """UID of the node; empty: unknown."""
    put_last: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Until when each job leaves the trial to others, and until when it avoided the node before, by key."""
    failed_jobs: list[str] = field(default_factory=list)
    """Keys of the jobs that have passed the trial on to others because their pods failed."""

    @property
    def reason(self) -> str:
        """Why the node is excluded, in a few words."""
        pods = f"pods of {self.jobs} jobs" if self.jobs != 1 else "pods of a job"
        return f"{pods} failed or were refused there, the last with: {self.detail}"

    @property
    def takes_no_pods(self) -> bool:
        """Whether the node takes no further pods now."""
        return self.phase is ExclusionPhase.EXCLUDED or (self.phase is ExclusionPhase.TRIAL and bool(self.trial_job))


@dataclass(slots=True)
class _ResultCount:
    """Numbers of pods on one node."""

    trained: int = 0
    failed: int = 0
    """Pods with a problem."""

    @property
    def mostly_failed(self) -> bool:
        return self.failed > self.trained


@dataclass(slots=True, eq=False)
class NodeHealth:
    """The last results of pods by node, and the exclusions that follow from them."""

    settings: HealthSettings = HealthSettings()
    exclusions: dict[str, Exclusion] = field(default_factory=dict)
    """By node."""
    started: int = 0
    """Number of exclusions that have begun, repeated ones included."""
    _results: dict[str, deque[PodResult]] = field(default_factory=dict)
    """Last results by node, the oldest first."""
    _groups: dict[str, dict[str, _ResultCount]] = field(default_factory=dict)
    """Results by job key or namespace, then by node."""
    running: Callable[[], Iterable[RunningWorker]] = field(default=tuple)
    """Returns all workers that train."""
    _credible: dict[str, bool] = field(default_factory=dict)
    """Whether the problems of a namespace's pods count as evidence, by namespace, since the last result."""
    _examined: dict[str, tuple[float, bool]] = field(default_factory=dict)
    """By namespace: when it was last examined whether its problems depend on the node, and the answer."""
    _now: float = -inf
    """Time of the last result."""

    # ---- results

    def note(self, node: str, result: PodResult) -> None:
        """Record the result of a pod, if nodes may be excluded at all."""
        if not self.settings.jobs:
            return
        results = self._results.get(node)
        if results is None:
            results = self._results[node] = deque()
        self._now = max(self._now, result.at)
        results.append(result)
        self._count(node, result, 1)
        while len(results) > self.settings.pods:
            self._count(node, results.popleft(), -1)

    def forget(self, node: str) -> None:
        """Discard everything about a node, because it was removed or repaired."""
        self.clear_results(node)
        self.exclusions.pop(node, None)

    def has_results(self, node: str) -> bool:
        """Return whether results of the node's pods are known."""
        return node in self._results

    def clear_results(self, node: str) -> None:
        """Discard the results of a node's pods."""
        for result in self._results.pop(node, ()):
            self._count(node, result, -1)

    def _count(self, node: str, result: PodResult, by: int) -> None:
        self._credible.clear()
        for group in (result.job, result.namespace):
            by_node = self._groups.setdefault(group, {})
            results = by_node.get(node)
            if results is None:
                results = by_node[node] = _ResultCount()
            if result.problem:
                results.failed += by
            else:
                results.trained += by
            if not (results.failed or results.trained):
                del by_node[node]
                if not by_node:
                    del self._groups[group]

    # ---- judgement

    def is_evidence(self, node: str, result: PodResult) -> bool:
        """Return whether a result is a problem that may be the node's.

        A job that fails on most of its nodes says nothing about a node, unless more jobs fail on that node than nodes
        fail the job: the node then explains more than the job. Nor does a namespace that fails on most of its nodes,
        unless that depends on the node.
        """
        if not result.problem:
            return False
        nodes = self._nodes_if_most(result.job, JOB_NODES)
        if nodes and _count_failing_jobs(self._results.get(node, ())) <= nodes:
            return False
        if result.namespace not in self._credible:
            fails = self._nodes_if_most(result.namespace, NAMESPACE_NODES)
            self._credible[result.namespace] = not fails or self._depends_on_nodes(result.namespace)
        return self._credible[result.namespace]

    def count_evidence(self, node: str, job: str, since: float) -> int:
        """Return how many problems of the job's pods since a time, among the last on a node, may be the node's."""
        results = (result for result in self._results.get(node, ()) if result.job == job and result.at >= since)
        return sum(self.is_evidence(node, result) for result in results)

    def _nodes_if_most(self, group: str, fewest: int) -> int:
        """Return the number of nodes on which a job or namespace fails, if these are most of at least `fewest`."""
        by_node = self._groups.get(group, {})
        failing = sum(results.mostly_failed for results in by_node.values())
        return failing if len(by_node) >= fewest and 2 * failing > len(by_node) else 0

    def _depends_on_nodes(self, namespace: str) -> bool:
        """Return whether the problems of a namespace depend on the node, as last examined."""
        at, depends = self._examined.get(namespace, (-inf, False))
        if self._now >= at + RECHECK_SECONDS:
            at, depends = self._examined[namespace] = self._now, self._examine(namespace)
        return depends

    def _examine(self, namespace: str) -> bool:
        """Examine whether the problems of a namespace's pods depend on the node.

        Several of its pods train or trained on one node, more than had a problem there. And on no node where more had a
        problem does a pod of any namespace train since the first of them. A pod that runs counts if it has trained for
        twice as long as any pod of the namespace that had a problem.
        """
        counts = self._groups.get(namespace, {})
        by_node = {node: self._results[node] for node in counts}
        own_results = [
            (node, result) for node, results in by_node.items() for result in results if result.namespace == namespace
        ]
        first: dict[str, float] = {}
        for node, result in own_results:
            if result.problem and counts[node].mostly_failed:
                first.setdefault(node, result.at)
        sound = max(
            LONG_SECONDS, 2.0 * max((result.lasted for _, result in own_results if result.problem), default=0.0)
        )
        training = Counter({node: count.trained for node, count in counts.items() if not count.mostly_failed})
        for node, since in first.items():
            if any(not result.problem and result.at > since for result in by_node[node]):
                return False
        for worker in self.running():
            if worker.seconds >= sound:
                if worker.node not in first:
                    training[worker.node] += worker.namespace == namespace
                elif worker.since > first[worker.node]:
                    return False
        fewest, none = self.settings.jobs, _ResultCount()
        return any(n >= fewest and n > counts.get(node, none).failed for node, n in training.items())

    def explained(self, node: str, since: float = -inf) -> list[PodResult]:
        """Return the problems that explain the failure of a job on a node; empty if too few jobs or pods had them.

        Several jobs and at least half of the last pods must have had one. Jobs that fail everywhere count here, so
        this is no reason to exclude the node: that is `evidence`.
        """
        fewest = self.settings.jobs
        results = [result for result in self._results.get(node, ()) if result.at >= since]
        problems = [result for result in results if result.problem]
        enough = fewest and _count_failing_jobs(problems) >= fewest and 2 * len(problems) >= len(results)
        return problems if enough else []

    def evidence(self, node: str, since: float = -inf) -> list[PodResult]:
        """Return the problems that are a reason to exclude a node; empty if they do not suffice.

        Unlike `explained`, jobs that fail everywhere do not count.
        The pods of one job suffice if several had a problem on the node and some have trained on other nodes.
        """
        fewest = self.settings.jobs
        results = [result for result in self._results.get(node, ()) if result.at >= since]
        problems = [result for result in results if self.is_evidence(node, result)]
        if not fewest or 2 * len(problems) < len(results):
            return []
        if _count_failing_jobs(problems) >= fewest:
            return problems
        return (
            problems
            if len(problems) >= fewest and any(self._trains_elsewhere(result, node) for result in problems)
            else []
        )

    def _trains_elsewhere(self, result: PodResult, node: str) -> bool:
        by_node = self._groups.get(result.job, {})
        return any(name != node and results.trained > results.failed for name, results in by_node.items())

    # ---- exclusions

    def excluded(self, site: str) -> list[Exclusion]:
        """Return the exclusions at a site that have not ended, in order of their beginning."""
        return sorted(
            (exclusion for exclusion in self.lasting() if exclusion.site == site),
            key=lambda exclusion: (exclusion.since, exclusion.node),
        )

    def lasting(self) -> Iterator[Exclusion]:
        """Yield all exclusions that have not ended."""
        return (exclusion for exclusion in self.exclusions.values() if exclusion.phase is not ExclusionPhase.RECOVERED)

    def room(self, site: str, nodes: int, namespaces: int) -> tuple[bool, Exclusion | None]:
        """Return whether one more node of a site may be excluded, and the exclusion that must end for that, if any.

        A node on trial that no job uses has no precedence over a node where pods have problems now.

        Args:
            site: The site.
            nodes: Number of its nodes.
            namespaces: Number of namespaces whose pods had a problem on the node. Problems of several namespaces take
                precedence over those of one.
        """
        allowed = max(1 if nodes > 1 or namespaces > 1 else 0, int(self.settings.site_share * nodes))
        present = self.excluded(site)
        if len(present) < allowed:
            return True, None
        idle = [exclusion for exclusion in present if not exclusion.takes_no_pods]
        weaker = idle + [exclusion for exclusion in present if exclusion.namespaces == 1 and namespaces > 1]
        return (True, weaker[0]) if weaker and allowed else (False, None)

    def copied(self) -> "NodeHealth":
        """Return an independent copy of the exclusions, without results."""
        return NodeHealth(self.settings, {name: shallow_copy(exclusion) for name, exclusion in self.exclusions.items()})


def _count_failing_jobs(results: Iterable[PodResult]) -> int:
    """Return the number of different jobs with a problem among the results."""
    return len({result.job for result in results if result.problem})
