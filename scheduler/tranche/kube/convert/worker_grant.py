"""Conversion between status.plan.grant and the planner's value of a grant of workers."""

from collections.abc import Iterable, Sequence
from math import inf, isfinite
from typing import Any

from tranche.kube.api.resources import NodePods, ReservedCells, SlotOffer
from tranche.kube.api.resources import PodPlaces as PlacesStatus
from tranche.kube.api.resources import WorkerGrant as GrantStatus
from tranche.model import PodPlaces, SlotCells, SlotPlan, WorkerGrant
from tranche.model.plan import MAX_CELL_SLOTS, PodCounts, cell_runs

MAX_PLACES = 300
"""Maximum number of nodes in `nodes`. With more, the field is absent, and the next planner distributes again."""


def read_grant(known: GrantStatus) -> WorkerGrant:
    """Read the grant that an earlier planner wrote."""
    return WorkerGrant(
        policy=known.policy,
        workers=known.workers,
        place=known.place,
        preferred=_read_places(known.nodes) if known.nodes is not None else None,
        slot_seconds=known.slots.seconds if known.slots is not None else 0.0,
        slot_plan=_read_offer(known.slots) if known.slots is not None else None,
    )


def _read_offer(known: SlotOffer) -> SlotPlan:
    """Read the last offer; cells in more slots than any planner reserves are left out."""
    slots = sum(max(0, one.last - one.first + 1) for one in known.cells)
    return SlotPlan(
        payoff=-inf if known.payoff is None else known.payoff,
        offered_slot=known.offered,
        returned=known.returned,
        cells=tuple(_read_cells(known.cells)) if slots <= MAX_CELL_SLOTS else (),
        is_too_large=known.too_large,
    )


def _read_cells(known: Iterable[ReservedCells]) -> Iterable[SlotCells]:
    for one in known:
        workers, servers = _read_places(one)
        for slot in range(one.first, one.last + 1):
            yield SlotCells(slot, workers, servers)


def _read_places(known: PlacesStatus) -> PodPlaces:
    return PodPlaces(_read_counts(known.workers), _read_counts(known.parameter_servers))


def _read_counts(known: Sequence[NodePods]) -> PodCounts:
    return tuple((one.node, one.pods) for one in known)


def grant_status(grant: WorkerGrant) -> dict[str, Any]:
    """Build status.plan.grant as JSON."""
    status: dict[str, Any] = {"policy": grant.policy, "workers": grant.workers, "place": grant.place}
    if grant.preferred is not None and len(grant.preferred.workers) + len(grant.preferred.servers) <= MAX_PLACES:
        status["nodes"] = _places(grant.preferred)
    if grant.slot_plan is not None:
        status["slots"] = _offer(grant.slot_plan, grant.slot_seconds)
    return status


def _offer(plan: SlotPlan, seconds: float) -> dict[str, Any]:
    status: dict[str, Any] = {"seconds": seconds, "offered": plan.offered_slot, "returned": plan.returned}
    if isfinite(plan.payoff):
        status["payoff"] = plan.payoff
    if plan.is_too_large:
        status["tooLarge"] = True
    if plan.cells:
        status["cells"] = [
            {"first": run.first, "last": run.last, **_places(run.places)} for run in cell_runs(plan.cells)
        ]
    return status


def _places(places: PodPlaces) -> dict[str, Any]:
    found = {"workers": _counts(places.workers)}
    return found | ({"parameterServers": _counts(places.servers)} if places.servers else {})


def _counts(counts: PodCounts) -> list[dict[str, Any]]:
    return [{"node": node, "pods": pods} for node, pods in counts]
