"""OASiS: a job is admitted if its utility exceeds the price of the cheapest cells in which it completes.

Source: Bao, Peng, Wu and Li, Online Job Scheduling in Distributed Machine Learning Clusters, INFOCOM 2018, arXiv
1801.00936, read in full [P]: prices, dynamic programme over slots, greedy choice of servers, admission by payoff.
Deviations [I]: work is counted in at most 50 quanta, so the optimality of the programme is lost; the printed bounds of
prices subtract the arrival from a duration, which is corrected; workers run on nodes with GPUs and parameter servers on
the others, or, if they may run on none of these, on half of the cores and memory of the nodes where they may; a job has
all the parameter servers that it declares while it has workers; horizon, offers to jobs that were not admitted, and
unreserved cells are those of `tranche.policies.slot_table.slot_table_policy`.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from tranche.policies.base import PolicyTraits
from tranche.policies.slot_table.offer import PricedTable
from tranche.policies.slot_table.pool import Pool
from tranche.policies.slot_table.pooled_table import PooledTable
from tranche.policies.slot_table.slot_job import Amounts
from tranche.policies.slot_table.slot_table_policy import SlotTablePolicy, machines_of, requested_total
from tranche.state.cluster import ClusterState
from tranche.state.job import JobState

FACTOR = 4.0
"""Factor in the least price of OASiS."""


@dataclass(frozen=True, slots=True)
class Oasis(SlotTablePolicy):
    """Admission by utility less price, with workers and parameter servers in separate pools."""

    name: ClassVar[str] = "oasis"
    source: ClassVar[str] = (
        "OASiS [P]: admission by utility less price, cells by slot (Bao, Peng, Wu and Li, INFOCOM 2018); deviations [I]"
    )
    traits: ClassVar[PolicyTraits] = PolicyTraits(
        precedence_reason="whose utility is further above the price of its cells, or which has cells in this slot",
        uses_weights=True,
        preemptive=True,
        allocates_workers=True,
    )

    def table(self, cluster: ClusterState, states: Sequence[JobState], horizon_slots: int) -> PricedTable:
        """Return both pools, each with prices of its own."""
        shapes = {state.job.server for state in states if state.job.server is not None and state.job.servers}
        server_places = {node.node.name for shape in shapes for node in cluster.eligible(shape)}
        hosts, servers = pools(machines_of(cluster), server_places)
        tables = []
        for machines, role in ((hosts, "worker"), (servers, "server")):
            claims = [self.claim(state, cluster, horizon_slots, role) for state in states]
            total = requested_total(machines, claims)
            tables.append(Pool(machines, self.prices(claims, total, horizon_slots, FACTOR)))
        return PooledTable(*tables)

    def seconds_per_batch(self, state: JobState, cluster: ClusterState) -> tuple[float, float]:
        """Return the expected time of a mini-batch, wherever its pods are."""
        return state.nominal_batch_seconds, state.nominal_batch_seconds


def pools(
    machines: Mapping[str, Amounts], server_places: Collection[str]
) -> tuple[dict[str, Amounts], dict[str, Amounts]]:
    """Return the machines for workers and those for parameter servers, which may run on `server_places`."""
    hosts = {name: whole for name, whole in machines.items() if whole.gpus > 0} or dict(machines)
    without_gpus = {name: whole for name, whole in machines.items() if name not in hosts and name in server_places}
    if without_gpus or not server_places:
        return hosts, without_gpus
    halves = {
        name: Amounts(0.0, whole.cores / 2, whole.gibibytes / 2)
        for name, whole in machines.items()
        if name in server_places
    }
    return {name: whole.minus(halves[name]) if name in halves else whole for name, whole in hosts.items()}, halves
