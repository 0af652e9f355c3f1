"""CPU time of the planner for each event and for a take-over, with thousands of workers that train.

``python benchmarks/event_costs.py`` fills the watches of a controller with jobs of one worker on nodes of eight GPUs
(or ``--gpus``), and lets all workers run. Another controller takes over with the same watches. Then other pods start on
nodes and end, and nodes fail and return. Last, a part of the jobs is suspended, and the watches deliver the plans with
the closing windows, the deletion of their pods, and the removal of these. Nothing is sent; the API server and the
operator are not there. It exits with 1 if a bound of ranges.toml is missed.
"""

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec

import ranges
from tranche.kube.api.core_types import NodeObject, Pod
from tranche.kube.api.resources import TrainingJob
from tranche.kube.convert.pod_decoder import decode_pod
from tranche.live.controller import Controller
from tranche.live.planner_config import PlannerConfig
from tranche.metrics.scheduler import Metrics
from tranche.model import Window

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from support import live_controller

CREATED, DELETED = "2027-01-15T08:00:00Z", "2027-01-15T08:00:30Z"
LABELS = {"tranche.dev/role": "worker", "tranche.dev/index": "0"}


def worker_pod(job: str, window: Window, **metadata: Any) -> Pod:
    """Return a pod that trains."""
    name = f"{job}-worker-0-{window.attempt}"
    owner = {"apiVersion": "tranche.dev/v1alpha1", "kind": "TrainingJob", "name": job, "uid": job, "controller": True}
    labels = {**LABELS, "tranche.dev/job": job, "tranche.dev/attempt": str(window.attempt)}
    named = {"name": name, "namespace": "default", "uid": name, "labels": labels, "ownerReferences": [owner]}
    requests = {"cpu": "1", "nvidia.com/gpu": "1"}
    status = {
        "phase": "Running",
        "conditions": [{"type": "PodScheduled", "status": "True"}],
        "containerStatuses": [{"name": "t", "ready": True, "state": {"running": {"startedAt": CREATED}}}],
    }
    spec = {"nodeName": window.node, "containers": [{"name": "t", "resources": {"requests": requests}}]}
    whole = {"metadata": {**named, "creationTimestamp": CREATED, **metadata}, "spec": spec, "status": status}
    return decode_pod(json.dumps(whole).encode())


def other_pod(number: int, node: str) -> Pod:
    """Return a running pod of another program."""
    name = f"web-{number}"
    spec = {"nodeName": node, "containers": [{"name": "main", "resources": {"requests": {"cpu": "10m"}}}]}
    metadata = {"name": name, "namespace": "default", "uid": name}
    return decode_pod(json.dumps({"metadata": metadata, "spec": spec, "status": {"phase": "Running"}}).encode())


def judged(node: NodeObject, ready: str) -> NodeObject:
    """Return a node with the status of its condition Ready."""
    conditions = tuple(msgspec.structs.replace(one, status=ready) for one in node.status.conditions)
    return msgspec.structs.replace(node, status=msgspec.structs.replace(node.status, conditions=conditions))


def planned(controller: Controller, name: str) -> TrainingJob:
    """Return a job with the status that the controller would write."""
    job = controller.watches.jobs.store[f"default/{name}"]
    status = live_controller.written(controller, name)
    return job.model_copy(update={"status": type(job.status).model_validate(status)})


def suspended(controller: Controller, name: str) -> TrainingJob:
    """Return a job as its user has suspended it."""
    job = controller.watches.jobs.store[f"default/{name}"]
    metadata = job.metadata.model_copy(update={"generation": 2})
    return job.model_copy(update={"spec": job.spec.model_copy(update={"suspend": True}), "metadata": metadata})


async def with_workers(workers: int, gpus: int, policy: str) -> tuple[Controller, dict[str, Window]]:
    """Return a controller whose jobs all train, and the window of each job."""
    with patch.object(live_controller, "Stopwatch", lambda: time.perf_counter):
        controller = await live_controller.taken_over(
            nodes=-(-workers // gpus), gpus=gpus, validate=False, policy=policy
        )
    for number in range(workers):
        job = live_controller.resource(f"job-{number}", data={"chunks": 1})
        live_controller.noted(controller, "jobs", job.key, job)
    controller.step()
    states = controller.planner.cluster.jobs.values()
    windows = {state.job.key.partition("/")[2]: run.window for state in states for run in state.runs.values()}
    for name, window in windows.items():
        live_controller.noted(controller, "jobs", f"default/{name}", planned(controller, name))
        pod = worker_pod(name, window)
        live_controller.noted(controller, "pods", pod.key, pod)
    controller.step()
    controller.step()
    controller._unpublished.clear()  # the plans are written, by what the watch shows
    assert all(run.started is not None for state in states for run in state.runs.values())
    return controller, windows


def take_over(former: Controller, policy: str) -> float:
    """Let another controller restore what the watches of one have, and decide once. Returns the CPU seconds."""
    planner = PlannerConfig(policy).planner(None, validate=False)
    following = Controller(
        None,  # type: ignore[arg-type]
        former.watches,
        planner,
        Metrics(),
        clock=lambda: live_controller.NOW + 5.0,
        stopwatch=time.perf_counter,
    )
    following.term = former.term + 1
    began = time.process_time()
    following.restore()
    following.step()
    took = time.process_time() - began
    runs = [run for state in planner.cluster.jobs.values() for run in state.runs.values()]
    assert len(runs) == len(former.watches.jobs.store)
    assert all(run.started is not None for run in runs)
    return took


async def measure(workers: int, gpus: int, events: int, policy: str) -> tuple[float, dict[str, float]]:
    """Return the CPU seconds of a take-over, and the CPU milliseconds of an event by kind."""
    controller, windows = await with_workers(workers, gpus, policy)
    taken = take_over(controller, policy)
    nodes = controller.watches.nodes.store
    stopping = {"deletionTimestamp": DELETED, "deletionGracePeriodSeconds": 30}
    names, places = list(windows)[:events], list(nodes)[: min(events, len(nodes) // 2)]
    others = [other_pod(number, node) for number, node in enumerate(places)]
    kinds: dict[str, Callable[[], list[tuple[str, str, Any]]]] = {
        "other pod starts": lambda: [("pods", one.key, one) for one in others],
        "other pod ends": lambda: [("pods", one.key, None) for one in others],
        "node fails": lambda: [("nodes", name, judged(nodes[name], "Unknown")) for name in places],
        "node returns": lambda: [("nodes", name, judged(nodes[name], "True")) for name in places],
        "job suspended": lambda: [("jobs", f"default/{name}", suspended(controller, name)) for name in names],
        "plan written": lambda: [("jobs", f"default/{name}", planned(controller, name)) for name in names],
        "worker stops": lambda: [
            ("pods", worker_pod(name, windows[name]).key, worker_pod(name, windows[name], **stopping)) for name in names
        ],
        "worker removed": lambda: [("pods", worker_pod(name, windows[name]).key, None) for name in names],
    }
    took = {}
    for kind, changes in kinds.items():
        created = changes()
        began = time.process_time()
        for change in created:
            live_controller.reported(controller, *change)
        took[kind] = 1000 * (time.process_time() - began) / len(created)
    return taken, took


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", default=[800, 3200])
    parser.add_argument("--gpus", type=int, default=8, help="GPUs of a node (8)")
    parser.add_argument("--events", type=int, default=200)
    parser.add_argument("--policy", default="chunk")
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    worst = taken = 0.0
    for workers in options.workers:
        taken, took = asyncio.run(measure(workers, options.gpus, options.events, options.policy))
        worst = max(took.values())
        print(f"{workers} workers, CPU ms of an event:", ", ".join(f"{kind} {ms:.2f}" for kind, ms in took.items()))
        print(f"{workers} workers, CPU seconds of a take-over: {taken:.2f}")
    sys.exit(not ranges.all_kept({"planner, CPU ms an event": worst, "planner, CPU seconds of a take-over": taken}))


if __name__ == "__main__":
    main()
