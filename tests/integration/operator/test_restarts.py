"""The operator may end at any moment; all that it knows is in the API server."""

import random
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from support.operator_lab import SITE, Lab, Process, operator_command, window
from support.waiting import eventually
from tranche_testcluster import Cluster, free_port

HEALTH_PORT = free_port()


@pytest.fixture
def process(cluster: Cluster, nodes: list[str]) -> Iterator[Process]:
    command = operator_command(cluster, "--health-port", str(HEALTH_PORT))
    process = Process(command, cluster.directory / "operator-restarts.log")
    yield process
    if process.process.poll() is None:
        process.kill()


def probe(path: str) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{HEALTH_PORT}/{path}", timeout=20) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        return int(error.code)
    except OSError:
        return 0


def test_it_stops_cleanly_when_asked_to(lab: Lab, process: Process) -> None:
    eventually(lambda: probe("readyz") == 200)
    assert probe("healthz") == 200
    lab.create()
    lab.plan(window(0, 1))
    lab.has_pods("cats-worker-0-1")
    assert process.terminate() == 0, process.log_text()
    assert "Traceback" not in process.log_text()


def test_what_happened_while_it_was_away_is_made_up_for(lab: Lab, process: Process) -> None:
    for name in ("cats", "dogs", "owls", "hens"):
        lab.create(name)
        lab.plan(window(0, 1), window(1, 2), name=name)
        lab.has_pods(f"{name}-worker-0-1", f"{name}-worker-1-2", job=name)
        lab.bind(f"{name}-worker-0-1")
    process.kill()
    lab.plan(window(1, 2), window(0, 1, "Closing"), window(2, 3), name="cats")
    lab.ask("DELETE", lab.path("dogs"))
    lab.plan(window(0, 1), name="owls", progress={"done": "0-3"})
    lab.plan(window(1, 2), name="hens")
    process.start()
    eventually(lambda: "deletionTimestamp" in lab.pods("cats")["cats-worker-0-1"]["metadata"])
    eventually(lambda: "cats-worker-2-3" in lab.pods("cats"))
    lab.has_pods(job="dogs")
    eventually(lambda: lab.is_stopping_or_gone("hens-worker-0-1", "hens"))
    assert "deletionTimestamp" not in lab.pods("hens")["hens-worker-1-2"]["metadata"]
    eventually(lambda: lab.status("owls").get("phase") == "Succeeded")


@pytest.mark.parametrize("seed", [1, 2])
def test_killed_at_any_moment_it_converges(lab: Lab, process: Process, seed: int) -> None:
    chance = random.Random(seed)
    workers = 12
    lab.create(chunks=workers, workers=workers)
    attempts = 0
    open_: dict[int, int] = {}
    closing: dict[int, int] = {}
    for _ in range(4):
        # The planner's turn: forget what has ended, close some windows, open as many as are free.
        existing = lab.pods()
        closing = {i: a for i, a in closing.items() if not _has_ended(existing.get(f"cats-worker-{i}-{a}"))}
        for index in [i for i in sorted(open_) if i not in closing and chance.random() < 0.4]:
            closing[index] = open_.pop(index)
        for index in range(workers):
            if index not in open_ and index not in closing:
                attempts += 1
                open_[index] = attempts
        windows = [window(i, a) for i, a in open_.items()] + [window(i, a, "Closing") for i, a in closing.items()]
        lab.plan(*windows)
        time.sleep(chance.uniform(0.5, 2.0))  # the moment of the kill is what varies here: no wait for a condition
        process.kill()
        process.start()
    counted = {f"cats-worker-{index}-{attempt}" for index, attempt in closing.items()}
    eventually(lambda: all(_has_ended(lab.pods().get(name)) for name in counted))
    lab.plan(*(window(i, a) for i, a in open_.items()))
    lab.has_pods(*(f"cats-worker-{index}-{attempt}" for index, attempt in open_.items()))
    eventually(lambda: lab.status().get("activeWorkers") == len(open_))
    assert not lab.status().get("sites") or lab.status()["sites"] == SITE


def test_two_at_once_do_no_harm(lab: Lab, process: Process, cluster: Cluster) -> None:
    second = Process(process.command[:-2], cluster.directory / "operator-second.log")
    try:
        lab.create(chunks=9, workers=9)
        eventually(lambda: "following" in second.log_text())
        for attempt in range(0, 27, 9):
            stopping = [window(index, attempt - 8 + index, "Closing") for index in range(9)] if attempt else []
            lab.plan(*(window(index, attempt + 1 + index) for index in range(9)), *stopping)
            wanted = {f"cats-worker-{index}-{attempt + 1 + index}" for index in range(9)}
            eventually(partial(_are_there, lab, wanted))
        assert not [pod for pod in lab.pods().values() if _has_ended(pod) and _attempt(pod) > 18]
        lab.plan(*(window(index, 19 + index) for index in range(9)))
        lab.has_pods(*(f"cats-worker-{index}-{19 + index}" for index in range(9)))
        eventually(lambda: lab.status().get("activeWorkers") == 9)
    finally:
        second.kill()
    assert "Traceback" not in second.log_text() + process.log_text()


def _are_there(lab: Lab, names: set[str]) -> bool:
    return names <= set(lab.pods())


def _attempt(pod: dict[str, Any]) -> int:
    return int(pod["metadata"]["labels"]["tranche.dev/attempt"])


def _has_ended(pod: dict[str, Any] | None) -> bool:
    return pod is None or "deletionTimestamp" in pod["metadata"]
