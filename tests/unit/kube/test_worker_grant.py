"""status.plan.grant: what is written is read again, and what another client writes does no harm."""

import json
from math import inf
from typing import Any

import pytest

from tranche.kube.api.resources import WorkerGrant as GrantStatus
from tranche.kube.convert.worker_grant import MAX_PLACES, grant_status, read_grant
from tranche.model import PodPlaces, SlotCells, SlotPlan, WorkerGrant
from tranche.model.plan import MAX_CELL_SLOTS, MAX_CELLS_BYTES, are_storable, cell_runs

ONE, OTHER = (("n1", 2),), (("n1", 1), ("n2", 1))
CELLS = (SlotCells(7, ONE, ()), SlotCells(8, ONE, ()), SlotCells(10, ONE, ()), SlotCells(11, OTHER, ONE))
GRANTS = [
    WorkerGrant("dorm", 3, 1.5),
    WorkerGrant("oasis", 0, -2.0, PodPlaces(), 900.0, SlotPlan(-inf, 8, 3)),
    WorkerGrant("oasis", 0, 0.1 + 0.2, PodPlaces(), 900.0, SlotPlan(1 / 3, 8, 3, is_too_large=True)),
    WorkerGrant("pd-ors-like", 2, 0.0, PodPlaces(OTHER, ONE), 0.5, SlotPlan(1e-300, 6, 0, CELLS)),
]


def round_trip(grant: WorkerGrant) -> WorkerGrant:
    return read_grant(GrantStatus.model_validate(json.loads(json.dumps(grant_status(grant)))))


@pytest.mark.parametrize("grant", GRANTS)
def test_grant_is_read_as_it_was_written(grant: WorkerGrant) -> None:
    assert round_trip(grant) == grant


def test_equal_cells_of_successive_slots_are_one_entry() -> None:
    assert [(run.first, run.last) for run in cell_runs(CELLS)] == [(7, 8), (10, 10), (11, 11)]


def test_places_on_too_many_nodes_are_left_out() -> None:
    many = PodPlaces(tuple((f"n{i}", 1) for i in range(MAX_PLACES + 1)))
    assert round_trip(WorkerGrant("oasis", 2000, 0.0, many)).preferred is None


def test_cells_in_more_slots_than_are_ever_reserved_are_ignored() -> None:
    cells = [{"first": 0, "last": 2**53, "workers": [{"node": "n1", "pods": 1}]}]
    forged: dict[str, Any] = {"policy": "oasis", "workers": 1, "place": 0.0}
    forged["slots"] = {"seconds": 900.0, "offered": 0, "payoff": 1.0, "cells": cells}
    found = read_grant(GrantStatus.model_validate(forged)).slot_plan
    assert found == SlotPlan(1.0, 0)


@pytest.mark.parametrize("servers", [0, 20])
@pytest.mark.parametrize("name", ["n", "node-" + 200 * "x"])
def test_bound_of_a_record_is_above_its_size(name: str, servers: int) -> None:
    counts = tuple((f"{name}{i}", 2000 - i) for i in range(100))
    cells = tuple(SlotCells(2_000_000_000 + 2 * i, counts[: 1 + i % 7], counts[:servers]) for i in range(50))
    status = grant_status(WorkerGrant("oasis", 1, 0.0, None, 900.0, SlotPlan(1.0, 0, 0, cells)))
    size = len(json.dumps(status["slots"]["cells"], separators=(",", ":")))
    assert size <= sum(run.max_bytes for run in cell_runs(cells)) <= 1.5 * size + 80
    assert are_storable(cells) == (sum(run.max_bytes for run in cell_runs(cells)) <= MAX_CELLS_BYTES)


def test_cells_in_too_many_slots_are_not_storable() -> None:
    cells = [SlotCells(i, ONE, ()) for i in range(MAX_CELL_SLOTS + 1)]
    assert are_storable(cells[:-1])
    assert not are_storable(cells)
