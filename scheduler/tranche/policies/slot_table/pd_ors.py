"""PD-ORS-like: prices and slots as in OASiS on one pool of machines, with placements inside one machine or on several.

Source: reconstructed [R] after the abstract of Yu, Liu, Wu, Ji and Bentley, Toward Efficient Online Scheduling for
Distributed Machine Learning Systems, arXiv 2108.02917, IEEE TNSE 2022, which names workers, parameter servers and
locality, an integer programme of packing and covering, and randomized rounding. Prices and dynamic programme are those
of OASiS, read in full, on one pool with memory [R]; synchronous training has the bandwidth inside a machine only if all
pods are on one [D]; rounding, its repair and its factor are described in `tranche.policies.slot_table.rounding`.
Ours [I]: a sample is a mini-batch of one worker; a job has all the parameter servers that it declares while it has
workers; horizon, offers to jobs that were not admitted, unreserved cells, and the nodes of pods are those of
`tranche.policies.slot_table.slot_table_policy`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import ClassVar

from tranche.policies.base import PolicyTraits
from tranche.policies.seeded_choice import uniform
from tranche.policies.slot_table.machine_table import MachineTable
from tranche.policies.slot_table.offer import PricedTable
from tranche.policies.slot_table.pool import Pool
from tranche.policies.slot_table.slot_job import seconds_per_sample
from tranche.policies.slot_table.slot_table_policy import SlotTablePolicy, machines_of, requested_total
from tranche.state.cluster import ClusterState
from tranche.state.job import JobState

MAX_TRIES = 1_000
FACTOR = 2.0
"""Factor in the least price of PD-ORS [R]."""
ROUNDINGS = ("random", "ceil", "packing", "covering")


@dataclass(frozen=True, slots=True)
class PdOrs(SlotTablePolicy):
    """Admission by utility less price, with placements inside one machine or on several."""

    name: ClassVar[str] = "pd-ors-like"
    source: ClassVar[str] = (
        "PD-ORS-like [R]: prices, slots and locality, reconstructed, design ours after the abstract of Yu et al., "
        "IEEE TNSE 2022"
    )
    traits: ClassVar[PolicyTraits] = PolicyTraits(
        precedence_reason="whose utility is further above the price of its cells, or which has cells in this slot",
        uses_weights=True,
        preemptive=True,
        allocates_workers=True,
    )

    quanta: float = 15.0
    """Number of equal parts into which the work of each job is divided, fewer than under `oasis`, since an offer takes
    longer; at most 1000."""
    locality: str = "on"
    """`on`: placements inside one machine are considered; `off`: only those on several."""
    rounding: str = "random"
    """`random`: with G = 1; `packing`, `covering`: with the G that bounds violations of that side by `delta`; `ceil`:
    every fraction up."""
    delta: float = 0.5
    """Bound of the probability of a violation, for the roundings `packing` and `covering`."""
    tries: float = 20.0
    """Most roundings of one placement before it is repaired, at most 1000."""
    internal: float = 0.0
    """Bandwidth inside a machine, in bit/s; 0: communication inside a machine takes no time."""
    external: float = 0.0
    """Bandwidth between machines, in bit/s; 0: that of the links."""

    def __post_init__(self) -> None:
        SlotTablePolicy.__post_init__(self)
        if self.locality not in ("on", "off") or self.rounding not in ROUNDINGS:
            raise ValueError(f"pd-ors-like knows locality on and off, and rounding {', '.join(ROUNDINGS)}")
        if not (0 < self.delta < 1 and 1 <= self.tries <= MAX_TRIES and min(self.internal, self.external) >= 0):
            raise ValueError(
                f"pd-ors-like needs 0 < delta < 1, tries from 1 to {MAX_TRIES}, internal ≥ 0 and external ≥ 0"
            )

    @property
    def draws(self) -> bool:
        """Whether the seed decides: unless every fraction is rounded up."""
        return self.rounding != "ceil"

    def table(self, cluster: ClusterState, states: Sequence[JobState], horizon_slots: int) -> PricedTable:
        """Return the pool of all machines."""

        def draw(key: str, slot: int, workers: int, attempt: int, entry: int) -> float:
            return uniform(cluster.seed, "rounding", key, slot, workers, attempt, entry)

        machines = machines_of(cluster)
        claims = [self.claim(state, cluster, horizon_slots, "job") for state in states]
        total = requested_total(machines, claims)
        return MachineTable(
            Pool(machines, self.prices(claims, total, horizon_slots, FACTOR)),
            draw,
            tries=0 if self.rounding == "ceil" else int(self.tries),
            bounded=self.rounding if self.rounding in ("packing", "covering") else "",
            delta=self.delta,
            is_local=self.locality == "on",
        )

    def seconds_per_batch(self, state: JobState, cluster: ClusterState) -> tuple[float, float]:
        """Return the time of a mini-batch with all pods on one machine, and on several, in seconds."""
        job = state.job
        if not job.servers:
            return state.nominal_batch_seconds, state.nominal_batch_seconds
        factor = state.nominal_batch_seconds / max(1e-12, cluster.declared_batch_seconds(state, job.home or ""))
        near = factor * seconds_per_sample(job.step_seconds, job.gradient_bits, 1.0, self.internal or inf, 1.0)
        far = factor * seconds_per_sample(
            job.step_seconds, job.gradient_bits, 1.0, min(self.external or inf, job.bits_per_second), 1.0
        )
        return near, far if self.external and isfinite(far) else state.nominal_batch_seconds
