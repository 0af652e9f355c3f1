"""Each field of the planner's state survives a take-over, or it is known what follows from its loss."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module
from inspect import getmembers, isclass
from math import inf
from pkgutil import iter_modules
from typing import Any

import pytest

import tranche.estimate
import tranche.planner
import tranche.state
from support.builders import job, node, planner, worker
from support.state_origins import JOB, JUDGED, Origin
from support.take_over import successor
from tranche.model import AttemptRecord, Checkpoint, PreemptedJob, Site
from tranche.planner import JobSubmitted, Planner, WorkerStarted
from tranche.state.job import JobState
from tranche.state.placement_record import PlacementRecord
from tranche.state.site_usage import SiteUsage
from tranche.state.staging import ARRIVED

NOW = 1_800_000_000.0
KEY = "default/a"
GRANTS = frozenset({"granted", "place", "preferred", "slot_plan"})
"""Fields of policies that distribute workers: see `test_worker_distribution` and `test_take_overs`."""
BINDING = frozenset({"data_sites"})
"""Fields of policies that bind chunks: see `test_bound_chunks`."""
CALCULATORS = ("iteration", "layer_graph", "link_contention", "throughput_model")
"""Modules of estimates whose objects no planner keeps."""


def mutable_classes(package: Any, *left_out: str) -> set[type]:
    """Return the dataclasses in the modules of a package whose objects can change."""
    modules = [import_module(f"{package.__name__}.{one.name}") for one in iter_modules(package.__path__)]
    return {
        found
        for module in modules
        if module.__name__.rpartition(".")[2] not in left_out
        for _, found in getmembers(module, isclass)
        if found.__module__ == module.__name__ and is_dataclass(found) and not found.__dataclass_params__.frozen  # type: ignore[attr-defined]
    }


def test_each_class_of_the_state_is_in_the_table() -> None:
    held = mutable_classes(tranche.state) | mutable_classes(tranche.planner)
    assert held | mutable_classes(tranche.estimate, *CALCULATORS) <= JUDGED.keys()


@pytest.mark.parametrize("kind", JUDGED, ids=lambda kind: kind.__name__)
def test_fate_of_each_field_is_known(kind: type) -> None:
    """A new field needs a decision: where does the next planner have it from, or what follows if it has not?"""
    fates = JUDGED[kind]
    assert {one.name for one in fields(kind)} == fates.keys()
    assert all(fate.effect for fate in fates.values() if fate.origin is Origin.LOST)


def before() -> Planner:
    """Return a planner with a job of which each field that a status holds differs from that of a new job."""
    p = planner("chunk", [node("n1", "here"), node("n2", "there"), node("n3", "there")], [Site("here"), Site("there")])
    shape: dict[str, Any] = {
        "server": worker(gpus=0),
        "servers": 1,
        "data_site": "here",
        "chunk_bytes": 1e9,
        "staged": True,
    }
    one = job("a", NOW - 500.0, chunks=6, max_workers=1, **shape)
    p.handle(JobSubmitted(one), NOW - 400.0)
    state = p.cluster.jobs[KEY]
    (run,) = state.runs.values()
    p.handle(WorkerStarted(KEY, run.window.attempt, NOW - 300.0), NOW - 300.0)
    (staging,) = state.stagings.values()
    staging.failures, staging.problem = 2, "no such image"
    ended = {"started": NOW - 399.0, "ended": NOW - 350.0, "exit_code": 1}
    record = AttemptRecord(0, 1, "n3", "Failed", **ended)  # type: ignore[arg-type]
    samples: dict[str, Any] = {
        "done": {5},
        "partial": {4: 12.5},
        "checkpoint": Checkpoint(1, {5: inf, 4: 12.5}),
        "attempts": state.attempts + 7,
        "counted_gpu_seconds": 123.0,
        "preemptions": 2,
        "failures": 3,
        "lost_batches": 4.5,
        "records": [record],
        "ended": {"Failed": 1, "Preempted": 2},
        "victims": (PreemptedJob("default/b", 2, NOW - 200.0),),
        "preempted_workers": 2,
        "busy_seconds": 11.0,
        "busy_since": NOW - 390.0,
        "placement": PlacementRecord(
            failed_preemptions=1,
            failures=2,
            nodes={"n2": None},
            message="no disk",
            failed_at=NOW - 20.0,
            paused_until=NOW + 40.0,
        ),
        "held_until": NOW + 30.0,
        "hold_reason": "no disk",
        "excluded_nodes": {"n3": NOW + 60.0},
        "node_failures": {"n3": 1},
    }
    for name, value in samples.items():
        setattr(state, name, value)
    state.history = (record,)
    state.copy(5, "there", ARRIVED)
    state.coming.pop(("there", 5), None)
    state.restarts.start_seconds, state.restarts.save_seconds = 5.0, 7.0
    state.use.sites["there"] = SiteUsage(10.0, 5.0, 1, 2e9, 1e9)
    return p


SEEN: dict[str, Callable[[JobState], Any]] = {
    "runs": lambda state: {attempt: (run.window, run.started) for attempt, run in state.runs.items()},
    "servers": lambda state: [server.planned for server in state.servers],
    "stagings": lambda state: {
        s.site: (s.attempt, sorted({*s.chunks} - state.done), s.wanted, s.failures, s.problem)
        for s in state.stagings.values()
    },
    "copies": lambda state: {
        site: sorted(c for c in there if c not in state.done) for site, there in state.copies.items()
    },
    "coming": lambda state: sorted(state.coming),
    "history": lambda state: len(state.history),
    "use": lambda state: (state.use.sites["there"].copied_bytes, state.use.sites["there"].chunks),
    "restarts": lambda state: (state.restarts.start_seconds, state.restarts.save_seconds),
    "placement": lambda state: [
        getattr(state.placement, one.name)
        for one in fields(PlacementRecord)
        if one.name not in ("refusals", "preempted_at")
    ],
    "excluded_nodes": lambda state: set(state.excluded_nodes),
}
"""Comparable parts of fields whose values contain more than a status holds."""


def seen(state: JobState, name: str) -> Any:
    look = SEEN.get(name)
    return look(state) if look is not None else getattr(state, name)


@cache
def both() -> tuple[JobState, JobState]:
    """Return the state of the job before and after a take-over."""
    p = before()
    return p.cluster.jobs[KEY], successor(p, NOW).cluster.jobs[KEY]


IN_STATUS = [name for name, fate in JOB.items() if fate.origin is Origin.STATUS and name not in GRANTS | BINDING]


@pytest.mark.parametrize("name", IN_STATUS)
def test_status_restores_the_field(name: str) -> None:
    old, new = both()
    fresh = JobState(old.job)
    fresh.use.sites["there"] = SiteUsage()
    assert seen(old, name) != seen(fresh, name), "the field is as in a new job, so that this test could not fail"
    assert seen(new, name) == seen(old, name)
