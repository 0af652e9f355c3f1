"""Base class of the policies that reserve cells of a slot table for each job.

Counts of workers hold for one slot and change at its boundary. Ours [I], common to both systems:

* The table has the nodes only. An unlimited site has no shortage, and jobs that complete there sooner start there, as
  under every policy.
* A job that arrives within a slot may use cells from the next slot on, and the horizon moves with it.
* Pods run on the machines of their cells as long as these have room, and workers move there when a slot begins. Until
  its first cells a job runs on the machines of these. Parameter servers do not move, because they hold the model: a job
  whose cells are inside another machine than that of its parameter servers stays where it is.
* A job that is not admitted is not dropped. It is offered again when a slot begins and when a job has given back its
  cells, at most `MAX_OFFERS` jobs at a time. So is the rest of a job that has overrun its cells, with its true arrival.
* Cells that no job has reserved are not left empty: in the present slot they go to the jobs without cells, those that
  overran theirs first, then in order of payoff, and after these to jobs that could use more workers than they reserved.
* Prices are estimated from the unfinished jobs, the last `KNOWN_JOBS` at most. Capacities of resources that none of
  them requests are left out of the sums.
"""

from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, inf

from tranche.model import PodPlaces, PodShape, Resources, SlotCells, SlotPlan, until
from tranche.model.plan import MAX_CELLS_BYTES, are_storable
from tranche.policies.allocation.allocation_policy import DistributingPolicy
from tranche.policies.allocation.draft import Draft, node_runs
from tranche.policies.allocation.utility import utility_of
from tranche.policies.base import PooledPolicy
from tranche.policies.seeded_choice import choose
from tranche.policies.slot_table.cells import Cells
from tranche.policies.slot_table.offer import PricedTable, offer
from tranche.policies.slot_table.price import Claim, PriceRange, price_range
from tranche.policies.slot_table.slot_job import NEARLY, Amounts, SlotJob, up
from tranche.state.cluster import ClusterState
from tranche.state.job import Arrival, JobState
from tranche.state.node import NodeState

MIN_HORIZON, MAX_HORIZON = 24, 300
"""Bounds of the number of slots in which a job may complete, unless it is chosen."""
LENGTHS = 10
"""Horizon in shortest durations of the longest job."""
KNOWN_JOBS = 100
"""Number of jobs, the last to arrive, from which prices are estimated."""
MAX_OFFERS = 10
"""Maximum number of jobs of each kind that are offered cells in one decision: of those that have arrived, the first; of
those that are offered cells again, those whose last offer is the longest ago, and of these the ones of the greatest
possible payoff."""
OFFERED_AGAIN = "it is offered slots again when one begins or another job gives back its own, and may use idle GPUs"
MAX_ROUNDING = 3
"""Factor above that of any rounding of a fractional placement by which a job gets more parameter servers."""
MAX_WORK = 2.0
"""Largest ratio of a plan's worker-slots to those of the job's work at its present speed, which differs from that at
the offer."""
GIB = 2**30
MIN_SLOT, MAX_CHOSEN_HORIZON, MAX_QUANTA = 1, 10_000, 1_000
"""Limits of the options, in seconds, slots and parts: an offer takes time and memory in proportion to its cells."""


@dataclass(frozen=True, slots=True)
class SlotTablePolicy(DistributingPolicy):
    """Cells of a slot table for each job whose utility exceeds their price."""

    slot: float = 3600.0
    """Length of a slot, in seconds, at least 1."""
    horizon: float = 0.0
    """Number of slots in which a job may complete; 0: ten times the longest shortest duration, from 24 to 300. At most
    10000."""
    quanta: float = 50.0
    """Number of equal parts into which the work of each job is divided, at most 1000."""
    price_scale: float = 1.0
    """Factor of the ratio of the greatest to the least price; below 1 it is under-estimated."""

    price_ratio: float = 0.0
    """Largest ratio of the greatest to the least price; 0: no bound, as published."""

    def __post_init__(self) -> None:
        PooledPolicy.__post_init__(self)
        is_affordable = 0 <= self.horizon <= MAX_CHOSEN_HORIZON and 1 <= self.quanta <= MAX_QUANTA
        if not (MIN_SLOT <= self.slot < inf and is_affordable):
            limits = f"horizon from 0 to {MAX_CHOSEN_HORIZON} and quanta from 1 to {MAX_QUANTA}"
            raise ValueError(f"{self.name} needs a finite slot ≥ {MIN_SLOT}, {limits}")
        if not 0 < self.price_scale < inf:
            raise ValueError(f"{self.name} needs a finite price_scale > 0")
        if self.price_ratio and not self.price_ratio > 1:
            raise ValueError(f"{self.name} needs price_ratio > 1, or 0 for no bound")

    def prices(self, claims: Sequence[Claim], capacity: float, horizon_slots: int, factor: float) -> PriceRange:
        """Return the bounds of prices under the options."""
        ratio = self.price_ratio or inf
        return price_range(claims, capacity, horizon_slots, factor=factor, scale=self.price_scale, most_ratio=ratio)

    @abstractmethod
    def table(self, cluster: ClusterState, states: Sequence[JobState], horizon_slots: int) -> PricedTable:
        """Return the table of the cluster's nodes without any reservation, with prices that these jobs imply."""

    @abstractmethod
    def seconds_per_batch(self, state: JobState, cluster: ClusterState) -> tuple[float, float]:
        """Return the time of a mini-batch with all pods on one node, and on several, in seconds."""

    def allocation_seconds(self) -> float:
        """Return the length of a slot."""
        return self.slot

    def allocate_workers(self, cluster: ClusterState, now: float) -> Draft:
        """Return the counts of the present slot, and what is left to jobs in order of payoff."""
        draft = Draft(cluster, now)
        slot = floor(now / self.slot + NEARLY)
        draft.plans = self._plans(cluster, draft, now)
        for key, plan in draft.plans.items():
            draft.cells[key] = _preferred_nodes(cluster.jobs[key], plan, slot)
        reserved = Counter({key: workers_in(plan, slot) for key, plan in draft.plans.items()})
        payoffs = {key: plan.payoff for key, plan in draft.plans.items()}
        first = [state for state in draft.jobs if reserved[state.job.key]]
        for state in first:
            while draft.workers(state) < reserved[state.job.key] and draft.add(state):
                pass
        without_cells = sorted(
            (state for state in draft.jobs if not reserved[state.job.key]),
            key=lambda state: (
                not (_has_overrun(state, slot) and node_runs(state)),
                -payoffs.get(state.job.key, -inf),
                state.arrival,
            ),
        )
        draft.jobs = [*first, *without_cells]
        for state in [*without_cells, *first]:
            while draft.add(state):
                pass
        return draft

    def choose_server_node(
        self, cluster: ClusterState, state: JobState, index: int, feasible: Sequence[NodeState], seed: int
    ) -> NodeState:
        """Return the first node on which the job has cells for parameter servers, else one drawn by the seed."""
        reserved_pods = Counter(dict(state.preferred.servers if state.preferred else ()))
        reserved_pods.subtract(server.planned.node or "" for server in state.servers)
        reserved = [node for node in feasible if reserved_pods[node.node.name] > 0]
        return reserved[0] if reserved else choose(feasible, seed, state.job.uid, index)

    def note(self, state: JobState, now: float) -> str:
        """Return until when GPUs are reserved for the job, when their reservation begins, or why there is none."""
        plan = state.slot_plan
        if plan is None:
            return ""
        slot = floor(now / self.slot + NEARLY)
        if plan.last_slot >= slot:
            first = next(cells.slot for cells in plan.cells if cells.slot >= slot)
            if first > slot:
                return f"no GPUs are reserved for it{until(first * self.slot, now)}"
            return f"GPUs are reserved for it{until((plan.last_slot + 1) * self.slot, now)}"
        if plan.cells:
            return "its reserved time slots are over, and it is offered others"
        if plan.is_too_large:
            why = f"the record of its time slots would exceed {MAX_CELLS_BYTES // 1024} KiB"
        elif plan.payoff == -inf:
            why = "its work does not fit into the free time slots"
        elif plan.payoff < 0:
            why = f"their price exceeds its utility by {-plan.payoff:.3g}"
        else:
            why = "it would gain nothing by them"
        return f"no GPUs are reserved for it: {why}; {OFFERED_AGAIN}"

    # ---- offers

    def _plans(self, cluster: ClusterState, draft: Draft, now: float) -> dict[str, SlotPlan]:
        """Return the plans of all active jobs, after the offers that are due to those that share the cluster."""
        slot, first = floor(now / self.slot + NEARLY), ceil(now / self.slot - NEARLY)
        active = sorted((state for state in cluster.jobs.values() if state.active), key=lambda state: state.arrival)
        known_plans = ((state, state.slot_plan) for state in active if state.slot_plan is not None)
        plans = {s.job.key: plan for s, plan in known_plans if self.is_sound(plan, s, cluster, first)}
        holders = {key for key, plan in plans.items() if plan.last_slot >= slot}
        draft.returned += len(draft.holders - holders)
        fresh = [state for state in draft.jobs if state.job.key not in plans]
        again = [
            state
            for state in draft.jobs
            if (plan := plans.get(state.job.key)) is not None
            and state.job.key not in holders
            and (plan.cells or first > plan.offered_slot or plan.returned < draft.returned)
        ]
        if fresh or again:
            priced = sorted(draft.jobs, key=lambda state: state.arrival)[-KNOWN_JOBS:]
            slots = self.horizon_slots(priced)
            table = self.table(cluster, priced, slots)
            for state in active:
                if state.job.key in holders:
                    self._take(table, self.slot_job(state, cluster, now), plans[state.job.key], slot)
            bounds = {s.job.key: self._possible(s, cluster, now, first) for s in (*fresh, *again)}
            again.sort(key=lambda state: _turn(state, plans[state.job.key], bounds[state.job.key], slot))
            chosen = [*fresh[:MAX_OFFERS], *again[:MAX_OFFERS]]
            draft.is_partial = len(fresh) > MAX_OFFERS
            for state in sorted(chosen, key=lambda state: state.arrival):
                possible = bounds[state.job.key]
                plans[state.job.key] = plan = (
                    SlotPlan(possible, first, draft.returned)
                    if possible <= 0 or not draft.most[state.job.key]
                    else self._offered(table, state, cluster, now, first, slots, draft.returned)
                )
                if plan.cells:
                    holders.add(state.job.key)
        draft.holders = frozenset(holders)
        return plans

    def _offered(
        self,
        table: PricedTable,
        state: JobState,
        cluster: ClusterState,
        now: float,
        first: int,
        slots: int,
        returned: int,
    ) -> SlotPlan:
        job, utility = self.slot_job(state, cluster, now), utility_of(state)
        arrival = ceil(state.job.submitted / self.slot - NEARLY)
        utilities = [utility.at((slot - arrival) * self.slot) for slot in range(first, first + slots)]
        best = offer(table, job, first, utilities, int(self.quanta))
        cells = tuple(SlotCells(slot, part.workers, part.servers) for slot, part in best.cells) if best.admits else ()
        if not are_storable(cells):
            return SlotPlan(best.payoff, first, returned, is_too_large=True)
        plan = SlotPlan(best.payoff, first, returned, cells)
        self._take(table, job, plan, first)
        return plan

    def _take(self, table: PricedTable, job: SlotJob, plan: SlotPlan, first: int) -> None:
        for slot, workers, servers in plan.cells:
            if slot >= first:
                table.take(job, slot, Cells(0.0, workers, servers))

    def is_sound(self, plan: SlotPlan, state: JobState, cluster: ClusterState, first: int) -> bool:
        """Return whether the policy can have made the plan for the job as it is specified now.

        A specification may change, and another client may have written the plan into the status. A plan that is not
        sound reserves nothing, and the job is offered cells as if it had just arrived.

        Args:
            plan: The plan.
            state: State of the job.
            cluster: Cluster, for the time of a mini-batch.
            first: First slot that an offer may use now.
        """
        if plan.offered_slot > first + 1:  # one slot later by the clock of another machine
            return False
        if not plan.cells:
            return True
        job = self._slot_job(state, cluster, state.job.chunks * state.job.batches_per_chunk_total * _nominal(state))
        numbers = [cells.slot for cells in plan.cells]
        counts = [sum(count for _, count in cells.workers) for cells in plan.cells]
        max_worker_slots = MAX_WORK * job.samples * max(job.internal_slots, job.external_slots) + job.lot * len(counts)
        return (
            numbers == sorted(set(numbers))
            and len(numbers) <= int(self.quanta)
            and plan.offered_slot <= numbers[0]
            and numbers[-1] < plan.offered_slot + max(self.horizon, MAX_HORIZON)
            and all(0 < count <= job.most_workers and count % job.lot == 0 for count in counts)
            and all(_most_servers(state, cells) >= sum(count for _, count in cells.servers) for cells in plan.cells)
            and all(count > 0 for cells in plan.cells for _, count in (*cells.workers, *cells.servers))
            and sum(counts) <= max_worker_slots
        )

    def _possible(self, state: JobState, cluster: ClusterState, now: float, first: int) -> float:
        """Return the utility of the earliest completion of the rest, above which no payoff can be."""
        job = self.slot_job(state, cluster, now)
        soonest = up(job.samples * job.internal_slots / job.most_workers) - 1
        arrival = ceil(state.job.submitted / self.slot - NEARLY)
        return utility_of(state).at((first + max(0, soonest) - arrival) * self.slot)

    # ---- jobs and nodes as the algorithms see them

    def horizon_slots(self, states: Sequence[JobState]) -> int:
        """Return T, counted from the first slot that a job may use."""
        longest = max((state.ideal_seconds for state in states), default=0.0)
        chosen = self.horizon or min(MAX_HORIZON, max(MIN_HORIZON, LENGTHS * ceil(longest / self.slot)))
        return max(1, int(chosen))

    def slot_job(self, state: JobState, cluster: ClusterState, now: float) -> SlotJob:
        """Return the rest of the job as the algorithms see it."""
        return self._slot_job(state, cluster, max(0.0, state.worker_seconds(now)))

    def claim(self, state: JobState, cluster: ClusterState, horizon_slots: int, role: str) -> Claim:
        """Return what the whole job contributes to the bounds of prices.

        Args:
            state: State of the job.
            cluster: Cluster, for the time of a mini-batch.
            horizon_slots: T.
            role: Role of the pod whose demand counts: `worker`, `server`, or `job` for one of each.
        """
        job = self._slot_job(state, cluster, state.job.chunks * state.job.batches_per_chunk_total * _nominal(state))
        utility, near = utility_of(state), job.samples * job.internal_slots
        demand = {"worker": job.worker, "server": job.server, "job": job.worker.plus(job.server)}[role]
        return Claim(
            best=utility.at(up(near / job.most_workers) * self.slot),
            last=utility.at(horizon_slots * self.slot),
            least_slots=up(near),
            most_slots=up(job.samples * job.external_slots),
            demand=demand,
        )

    def _slot_job(self, state: JobState, cluster: ClusterState, worker_seconds: float) -> SlotJob:
        job = state.job
        near, far = self.seconds_per_batch(state, cluster)
        served = job.server is not None and job.servers > 0
        return SlotJob(
            key=job.key,
            samples=max(NEARLY, worker_seconds / _nominal(state)),
            internal_slots=near / self.slot,
            external_slots=far / self.slot,
            most_workers=job.width,
            worker=amounts(job.worker.requests),
            server=amounts(job.server.requests) if job.server is not None and served else Amounts(),
            workers_per_server=job.width / job.servers if served else inf,
            least_servers=job.servers if served else 0,
            lot=job.min_available,
            places=_eligible_names(cluster, job.worker),
            server_places=_eligible_names(cluster, job.server) if job.server is not None and served else None,
        )


def _nominal(state: JobState) -> float:
    return max(NEARLY, state.nominal_batch_seconds)


def _eligible_names(cluster: ClusterState, shape: PodShape) -> frozenset[str]:
    return frozenset(node.node.name for node in cluster.eligible(shape))


def _most_servers(state: JobState, cells: SlotCells) -> int:
    """Return a bound of the number of parameter servers in a slot: roundings may add to those that the job declares."""
    return MAX_ROUNDING * state.job.servers + len(cells.servers) if state.job.servers else 0


def _has_overrun(state: JobState, slot: int) -> bool:
    """Return whether the job had cells, all of them in slots that are over."""
    return state.slot_plan is not None and -1 < state.slot_plan.last_slot < slot


def _turn(state: JobState, plan: SlotPlan, possible: float, slot: int) -> tuple[bool, int, int, float, Arrival]:
    """Return the order in which jobs are offered cells again: jobs that never get any keep it from no other."""
    return not _has_overrun(state, slot), plan.offered_slot, plan.returned, -possible, state.arrival


def _preferred_nodes(state: JobState, plan: SlotPlan, slot: int) -> PodPlaces:
    """Return the job's next cells, or, if they are inside one machine without its parameter servers, its nodes."""
    cells = next((slot_cells.places for slot_cells in plan.cells if slot_cells.slot >= slot), PodPlaces())
    machines = {name for name, _ in (*cells.workers, *cells.servers)}
    if len(machines) == 1 and any(server.planned.node not in machines for server in state.servers):
        present = Counter(run.home.node or "" for run in node_runs(state))
        return PodPlaces(tuple(present.items()))
    return cells


def workers_in(plan: SlotPlan, slot: int) -> int:
    """Return the number of workers that the plan has in the slot."""
    return sum(count for cells in plan.cells if cells.slot == slot for _, count in cells.workers)


def amounts(resources: Resources) -> Amounts:
    """Return GPUs, cores and GiB."""
    return Amounts(resources.gpus, resources.cpu / 1000, resources.memory / GIB)


def machines_of(cluster: ClusterState) -> dict[str, Amounts]:
    """Return the capacities of the nodes that take pods, those of unlimited sites left out, by name."""
    return {node.node.name: amounts(node.capacity) for node in cluster.hosting_nodes()}


def requested_total(capacity: Mapping[str, Amounts], claims: Sequence[Claim]) -> float:
    """Return the sum of the capacities of all resources that any of the jobs requests."""
    requested = [any(claim.demand[number] > 0 for claim in claims) for number in range(len(Amounts()))]
    return sum(
        part
        for machine in capacity.values()
        for part, is_requested in zip(machine, requested, strict=True)
        if is_requested
    )
