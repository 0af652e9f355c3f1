"""Trials of explanations: a waiting job should start earlier without the constraint that its explanation names.

A trial draws a scenario and a moment, reads the wait reason of one waiting job, and simulates the same scenario on
twice: as it is, and with that constraint removed at that moment. `tests/property/test_constraints.py` and
`benchmarks/explanations.py` count the answers for every policy that runs in clusters.
"""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count, islice
from math import inf

from support.builders import job
from tranche.model import Job, Link, Node, PodShape, Preemption, Resources, Site, Taint
from tranche.model.node_constraints import Constraints
from tranche.model.resource_quota import Quota, QuotaLimit
from tranche.model.tenancy import PRIORITY_CLASSES
from tranche.planner import (
    Event,
    JobChanged,
    NodeChanged,
    OpenWindow,
    Planner,
    PlannerSettings,
    QuotaChanged,
    Tick,
    WaitReason,
    WaitReasonKind,
    WorkerRejected,
    wait_reason_of,
)
from tranche.planner.forecast.counterfactual import without_limits
from tranche.planner.forecast.estimates import Estimate
from tranche.planner.forecast.explanation import explain
from tranche.planner.forecast.wait_reason import PERMANENT, Precedence
from tranche.policies import get_policy
from tranche.policies.registry import live_policies
from tranche.simulation.engine.simulation import Simulation, prepare
from tranche.state.job import JobState
from tranche.state.tenant_usage import CompletedJob

POLICIES = (*live_policies(), "chunk:fair=1:halflife=600:aging=0.3")
"""All live policies, and the options under which shares and age decide more often than by default."""
RESTART_SECONDS = 5.0
LONGEST_PAUSE_SECONDS = 1000.0
"""Longest time without a worker after which a job may still start: more than any hold or transfer takes here."""
GIB = 2**30
NAMESPACES = ("a", "b", "c")
CLAUSES = {
    "which has the higher priority class": "tier",
    "which has more weight": "weight",
    "which has waited longer for its size": "age",
    "whose namespace has used less than its share": "share",
    "whose namespace has the smaller share": "share",
    "which has less work left": "order",
    "which came earlier": "order",
}
"""Start of the clause that says why another job comes first, and its kind; other clauses state the policy's order."""


@dataclass(frozen=True, slots=True)
class World:
    """A scenario, and a moment in it."""

    policy: str
    nodes: tuple[Node, ...]
    sites: tuple[Site, ...]
    quotas: tuple[Quota, ...]
    jobs: tuple[Job, ...]
    events: tuple[tuple[float, Event], ...]
    services: tuple[float, ...]
    moment: float

    def simulation(self) -> Simulation:
        """Return the simulation, advanced to the time of the trial."""
        planner = Planner(get_policy(self.policy), PlannerSettings(share_weights={"a": 1.0, "b": 2.0}))
        planner.cluster.history.completed.extend(map(CompletedJob, self.services))
        made = Simulation(planner, RESTART_SECONDS)
        prepare(made, self.jobs, self.nodes, self.sites)
        for quota in self.quotas:
            made.at(0.0, QuotaChanged(quota))
        for at, event in self.events:
            made.at(at, event)
        made.at(self.moment, Tick())
        while made.now < self.moment:
            made.step()
        made.history.clear()
        return made


@dataclass(frozen=True, slots=True)
class Trial:
    """Answer of one trial."""

    kind: str
    """Kind of the wait reason, as `kind_of` returns it."""
    removed: str
    before: float
    """Start of the job as it is."""
    after: float
    """Start with the constraint removed; not before `before` if it is not earlier."""
    text: str
    is_gang: bool

    @property
    def is_earlier(self) -> bool:
        """Whether the job starts earlier with the constraint removed."""
        return self.after < self.before


def drawn_world(draw: random.Random, policy: str, later: float) -> World:
    """One to three sites of one or two nodes, and jobs of all kinds that are too many for them.

    Args:
        draw: Where everything comes from.
        policy: Policy with its options.
        later: Jobs that arrive after the moment, for each that arrives before.
    """
    names = [f"edge-{i}" for i in range(draw.randint(1, 3))]
    links = {one: {other: Link(draw.uniform(1e6, 2e7)) for other in names if other != one} for one in names}
    nodes = tuple(drawn_node(draw, f"{site}-n{i}", site) for site in names for i in range(draw.randint(1, 2)))
    moment, count = draw.uniform(100, 600), draw.randint(5, 11)
    arrivals = [draw.uniform(0, moment) for _ in range(count)]
    arrivals += [draw.uniform(moment, 2 * moment) for _ in range(int(later * count))]
    gangs = get_policy(policy).traits.supports_gangs
    jobs = tuple(drawn_job(draw, i, at, names, gangs=gangs) for i, at in enumerate(arrivals))
    quotas = tuple(drawn_quota(draw, name) for name in NAMESPACES if draw.random() < 0.4)
    refused = draw.sample(jobs[:count], 2)
    events: list[tuple[float, Event]] = [
        (moment - draw.uniform(0, 20), WorkerRejected(one.key, "exceeded quota", "")) for one in refused
    ]
    services = tuple(draw.lognormvariate(5.0, 1.0) for _ in range(20))
    return World(
        policy,
        nodes,
        tuple(Site(name, links=links[name]) for name in names),
        quotas,
        jobs,
        tuple(events),
        services,
        moment,
    )


def drawn_node(draw: random.Random, name: str, site: str) -> Node:
    gpus = draw.choice([1, 2, 4, 4])
    room = Resources(draw.choice([4, 8, 16]) * 1000 * gpus, draw.choice([16, 32]) * GIB * gpus, gpus, 110)
    taints = (Taint("dedicated", "others"),) if draw.random() < 0.05 else ()
    return Node(name, site, room, taints=taints, unschedulable=draw.random() < 0.05)


def drawn_quota(draw: random.Random, namespace: str) -> Quota:
    """A quota of GPUs, and sometimes of pods or CPU as well."""
    limits = [QuotaLimit("requests.nvidia.com/gpu", "gpus", draw.choice([1, 2, 2, 3, 4]))]
    if draw.random() < 0.3:
        limits.append(QuotaLimit("pods", "pods", draw.choice([2, 3, 4])))
    if draw.random() < 0.3:
        limits.append(QuotaLimit("requests.cpu", "cpu", draw.choice([8, 16]) * 1000))
    return Quota(namespace, "limits", tuple(limits))


def drawn_job(draw: random.Random, number: int, submitted: float, sites: list[str], *, gangs: bool) -> Job:
    """A gang, or a chunked job with data or without."""
    is_gang, gpus = gangs and draw.random() < 0.3, draw.choice([1, 1, 1, 1, 2])
    cpu = draw.choice([1, 2, 4, 8]) * 1000
    selector = (("zone", "a"),) if draw.random() < 0.005 else ()
    shape = PodShape(Resources(cpu, draw.choice([2, 8, 24]) * GIB, gpus, 1), Constraints(selector=selector))
    changes: dict[str, object] = {}
    if not is_gang and draw.random() < 0.6:
        changes = {"data_site": draw.choice(sites), "chunk_bytes": draw.choice([5e7, 4e8])}
    if draw.random() < 0.2:
        changes |= {"servers": 1, "server": PodShape(Resources(draw.choice([1, 6]) * 1000, 2 * GIB, 0, 1))}
    chunks = draw.randint(1, 2) if is_gang else draw.randint(1, 4)
    return job(
        f"j{number}",
        submitted,
        key=f"{draw.choice(NAMESPACES)}/j{number}",
        chunks=chunks,
        seconds=draw.lognormvariate(5.0, 1.0),
        worker=shape,
        is_gang=is_gang,
        max_workers=chunks if is_gang else draw.randint(1, chunks),
        restart_seconds=RESTART_SECONDS,
        weight=draw.choice([1.0, 1.0, 3.0]),
        priority=PRIORITY_CLASSES[draw.choice(["tranche-normal"] * 3 + ["tranche-low", "tranche-high"])],
        preemption=draw.choice([Preemption.IMMEDIATE] * 3 + [Preemption.NEVER]),
        suspended=draw.random() < 0.01,
        **changes,
    )


def waiting_jobs(planner: Planner) -> list[str]:
    jobs = planner.cluster.jobs.values()
    return sorted(state.job.key for state in jobs if not state.runs and (state.active or state.job.suspended))


def start_of(simulation: Simulation, key: str, until: float = inf) -> float:
    """Return when the job's next window opens; inf if it does not before that time, or if all workers have ended."""
    busy = simulation.now
    while simulation.now < until and (simulation._heap or simulation.planner.next_wakeup() is not None):
        simulation.step()
        busy = simulation.now if simulation._heap else busy
        if simulation.now > busy + LONGEST_PAUSE_SECONDS:
            break
        for at, instruction in simulation.history:
            if isinstance(instruction, OpenWindow) and instruction.job == key:
                return at
        simulation.history.clear()
    return inf


def remove(simulation: Simulation, world: World, key: str, reason: WaitReason) -> str:
    """Take the constraint away at the moment; returns how, or "" if the reason itself says it."""
    state = simulation.planner.cluster.jobs[key]
    if reason.is_permanent or reason.kind is WaitReasonKind.QUOTA:
        for quota in without_limits(reason.shortages):
            simulation.at(world.moment, QuotaChanged(quota))
    if reason.kind is WaitReasonKind.ROOM:
        event, how = room_event(simulation.planner, state, reason)
        simulation.at(world.moment, event)
        return how
    if reason.kind is WaitReasonKind.DATA:
        bring_data(simulation.planner, state, reason.site, world.moment)
        simulation.at(world.moment, Tick())
    elif reason.kind in (WaitReasonKind.SUSPENDED, WaitReasonKind.HELD):
        simulation.at(world.moment, JobChanged(replace(state.job, suspended=False, generation=2)))
    else:
        for node in better_nodes(world, state, reason):
            simulation.at(world.moment, NodeChanged(node))
    return ""


def better_nodes(world: World, state: JobState, reason: WaitReason) -> list[Node]:
    """Return nodes without which the reason holds: new ones, or known ones with more resources."""
    helpers = Resources(64_000, 256 * GIB, 0, 110)
    match reason.kind:
        case WaitReasonKind.NODE | WaitReasonKind.SIZE:
            labels = dict(state.job.worker.constraints.selector)
            room = Resources(16_000, 64 * GIB, 4, 110)
            return [Node(n.name, n.site, room + n.allocatable, labels=labels) for n in world.nodes]
        case WaitReasonKind.WORKERS_WITH_SERVERS if state.entries:
            bound = {entry.home.node for entry in state.entries.values()}
            return [replace(n, allocatable=n.allocatable + helpers) for n in world.nodes if n.name in bound]
        case WaitReasonKind.GANG | WaitReasonKind.WORKERS_WITH_SERVERS:
            return [Node("more", world.sites[0].name, replace(helpers, gpus=8))]
        case WaitReasonKind.SERVER | WaitReasonKind.SERVER_SIZE:
            return [Node("more", reason.site or world.sites[0].name, helpers)]
    return []


def room_event(planner: Planner, state: JobState, reason: WaitReason) -> tuple[Event, str]:
    """Return the event that gives the job the room that it waits for, and what the event changes."""
    one = state.job
    if reason.precedence is Precedence.RESTRAINED:
        return JobChanged(replace(one, generation=2)), "restraint"
    if reason.behind:
        return JobChanged(replace(planner.cluster.jobs[reason.behind].job, suspended=True, generation=2)), "other job"
    known = planner.cluster.nodes.get(reason.node)
    if known is None:
        return Tick(), "nothing"
    requests = one.worker.requests
    if one.is_gang:
        amounts = {name: one.chunks * getattr(requests, name) for name in ("gpus", "cpu", "memory", "pods")}
        return NodeChanged(replace(known.node, name="more", allocatable=Resources(**amounts))), "a node"
    more = Resources(**{name: getattr(requests, name) for name in reason.resources})
    return NodeChanged(replace(known.node, allocatable=known.node.allocatable + more)), " ".join(reason.resources)


def bring_data(planner: Planner, state: JobState, site: str, now: float) -> None:
    """Let the data of the job be at the site now."""
    if state.entries:
        for entry in state.entries.values():
            if entry.home.site == site:
                entry.ready_at = now
    else:
        for chunk in state.waiting:
            state.copy(chunk, site, now)
    planner.context.touch(state)


def kind_of(reason: WaitReason, text: str) -> str:
    """Return the kind of a wait reason: what puts another job first, or the reason itself.

    Args:
        reason: The wait reason.
        text: The explanation that describes it.
    """
    if reason.kind in PERMANENT:
        return "nodes"
    if reason.kind in (WaitReasonKind.SUSPENDED, WaitReasonKind.HELD, WaitReasonKind.AVOIDED):
        return "held"
    if reason.kind is WaitReasonKind.SERVER:
        return "server"
    if not reason.behind:
        return "next" if reason.kind is WaitReasonKind.ROOM else reason.kind.value.lower()
    if reason.precedence is not Precedence.ORDER:
        return "not stopped"
    clause = text.partition(f"behind {reason.behind}, ")[2]
    return next((name for start, name in CLAUSES.items() if clause.startswith(start)), "order")


def expected_kinds(policy: str) -> set[str]:
    """Return the kinds of wait reasons that must occur under the policy."""
    made = get_policy(policy)
    kinds = {"held", "nodes", "quota", "data", "order", "not stopped"}
    kinds |= {"tier"} if made.uses_tiers else set()
    has_weight_clause = made.uses_weights and made.name != "least-loaded" and not made.traits.allocates_workers
    kinds |= {"weight"} if has_weight_clause else set()
    kinds |= {"share"} if made.name == "drf" or getattr(made, "fair", False) else set()
    kinds |= {"age"} if "aging=" in policy else set()
    kinds -= {"not stopped"} if made.traits.allocates_workers else set()  # rare: only workers that never stop
    return kinds | ({"gang"} if made.traits.supports_gangs else set())


def trials(draw: random.Random, policy: str, later: float = 0.0) -> Iterator[Trial]:
    """Yield one trial after the other, each of another scenario.

    The job of every second trial is drawn; that of the others is the one whose wait reason was the rarest so far.

    Args:
        draw: Where everything comes from.
        policy: Policy with its options.
        later: Jobs that arrive after the moment, for each that arrives before.
    """
    seen: Counter[str] = Counter()
    expected = expected_kinds(policy)
    for number in count():
        world = drawn_world(draw, policy, later)
        with_it = world.simulation()
        planner = with_it.planner
        keys = waiting_jobs(planner)
        if not keys:
            continue
        draw.shuffle(keys)
        planner.forecast(with_it.now)
        if number % 2:
            kinds = {key: kind_of(*explained(planner, key, planner.estimates.get(key), world.moment)) for key in keys}
            keys.sort(key=lambda key: seen[kinds[key]] if kinds[key] in expected else number)
        key = keys[0]
        reason, text = explained(planner, key, planner.estimate_of(key, world.moment), world.moment)
        kind = kind_of(reason, text)
        seen[kind] += 1
        without = world.simulation()
        removed = remove(without, world, key, reason)
        before = start_of(with_it, key)
        after = start_of(without, key, before)
        is_gang = planner.cluster.jobs[key].job.min_available > 1
        yield Trial(kind, removed, before, after, f"{key} at {world.moment:.3f}: {text}", is_gang)


def explained(planner: Planner, key: str, estimate: Estimate | None, now: float) -> tuple[WaitReason, str]:
    """Return the wait reason of a job, and its explanation."""
    state = planner.cluster.jobs[key]
    reason = wait_reason_of(planner.cluster, planner.policy, state, estimate, now)
    return reason, explain(planner.cluster, planner.policy, state, estimate, now).text


@dataclass(slots=True)
class TrialCount:
    """Trials under one policy."""

    policy: str
    total: Counter[str] = field(default_factory=Counter)
    earlier: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)
    """Explanations of the trials in which the job did not start earlier."""

    def add(self, trial: Trial) -> None:
        """Count a trial, under its kind, and under `gang` as well if members of a gang wait for room or a quota."""
        gang = ["gang"] if trial.is_gang and trial.kind not in ("held", "nodes") else []
        for kind in (trial.kind, "all", *gang):
            self.total[kind] += 1
            self.earlier[kind] += trial.is_earlier
        if not trial.is_earlier:
            self.failed.append(f"{trial.kind}: {trial.text} -> {trial.before:.3f}, {trial.removed or 'lifted'}")

    def missing(self, least: int) -> list[str]:
        """Return the expected kinds that occurred in fewer trials than that."""
        return sorted(kind for kind in expected_kinds(self.policy) if self.total[kind] < least)


def trial_count(policy: str, states: int, seed: int, later: float = 0.0) -> TrialCount:
    """Run trials, and count them."""
    count = TrialCount(policy)
    for trial in islice(trials(random.Random(seed), policy, later), states):
        count.add(trial)
    return count
