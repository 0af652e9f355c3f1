"""Nodes on which pods fail or are refused, in virtual time."""

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

from support.builders import job, node, planner, worker
from tranche.model import Constraints, Job, Preemption, Requirement
from tranche.planner import JobSubmitted, NodeChanged, Outcome, Planner, Tick, WorkerBound, WorkerEnded, WorkerStarted
from tranche.state.node_health import Exclusion

POLICIES = ["chunk", "srsf", "fifo", "chunk-faithful", "least-loaded", "dorm"]
HOUR = 3600.0


@dataclass
class Kubelets:
    """Nodes in virtual time: pods end with an outcome on bad nodes, and train on the others."""

    planner: Planner
    bad: dict[str, Outcome]
    after: float = 5.0
    now: float = 0.0
    bound: dict[tuple[str, int], float] = field(default_factory=dict)
    started: Counter[str] = field(default_factory=Counter)

    def run(self, seconds: float) -> None:
        """Let time pass, a second at a time."""
        end = self.now + seconds
        while self.now < end:
            self.now += 1.0
            for key, state in list(self.planner.cluster.jobs.items()):
                for attempt, run in list(state.runs.items()):
                    self._serve(key, attempt, run.window.node or "", closing=run.closing)
            self.planner.handle(Tick(), self.now)

    def _serve(self, key: str, attempt: int, name: str, *, closing: bool) -> None:
        if closing:
            self.planner.handle(WorkerEnded(key, attempt, "Preempted", self.now), self.now)
        elif (key, attempt) not in self.bound:
            self.bound[key, attempt] = self.now
            self.started[name] += 1
            self.planner.handle(WorkerBound(key, attempt, name), self.now)
            if self.bad.get(name) != "Refused":
                self.planner.handle(WorkerStarted(key, attempt, self.now), self.now)
        elif name in self.bad and self.now - self.bound[key, attempt] >= self.after:
            how = self.bad[name]
            reason = "UnexpectedAdmissionError: no healthy device" if how == "Refused" else ""
            self.planner.handle(
                WorkerEnded(key, attempt, how, self.now, exit_code=None if how == "Refused" else 1, reason=reason),
                self.now,
            )

    def failed(self) -> list[str]:
        return [key for key, state in self.planner.cluster.jobs.items() if state.failed]


def on(name: str, one: Job) -> Job:
    """Return the job with node affinity for one node."""
    term = (Requirement("metadata.name", "In", (name,), True),)
    return replace(one, worker=worker(constraints=Constraints(affinity=(term,))))


def busy_site(policy: str, bad: dict[str, Outcome], waiting: int = 8, **changes: Any) -> Kubelets:
    """Return four nodes, of which long jobs hold three, and jobs that wait for the fourth, which is bad."""
    p = planner(policy, [node("bad")])
    for number in range(3):
        p.handle(NodeChanged(node(f"n{number}")), 0.0)
        long = job(f"long{number}", seconds=10 * HOUR, weight=1e6, preemption=Preemption.NEVER)
        p.handle(JobSubmitted(on(f"n{number}", long)), 0.0)
    for number in range(waiting):
        p.handle(JobSubmitted(job(f"job{number}", 1.0, seconds=HOUR, **changes)), 1.0)
    return Kubelets(p, bad)


def exclusion(p: Planner, name: str = "bad") -> Exclusion | None:
    """Return the exclusion of a node that has not ended."""
    return next((one for one in p.cluster.health.lasting() if one.node == name), None)


def fail(p: Planner, key: str, now: float, how: Outcome = "Failed", reason: str = "") -> str:
    """End the only worker of a job, and return its node."""
    (run,) = p.cluster.jobs[key].runs.values()
    attempt, name = run.window.attempt, run.window.node or ""
    if how != "Refused":
        p.handle(WorkerStarted(key, attempt, now), now)
    p.handle(WorkerEnded(key, attempt, how, now, exit_code=1 if how == "Failed" else None, reason=reason), now)
    return name


def excluded_node(nodes: int = 4, policy: str = "chunk", **settings: Any) -> Planner:
    """Return a planner whose node `bad`, the fastest, is excluded because the pods of two jobs failed there at 1 s."""
    p = planner(policy, [node("bad", speed=2.0), *(node(f"n{n}") for n in range(1, nodes))], **settings)
    for name in ("one", "two"):
        p.handle(JobSubmitted(on("bad", job(name))), 0.0)
        p.handle(WorkerEnded(f"default/{name}", 1, "Failed", 1.0, exit_code=1), 1.0)
    assert exclusion(p)
    return p
