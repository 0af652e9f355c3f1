"""Two schedulers and one Lease: the leader can die or stop at any moment, and nothing is done twice."""

import json
import logging
import signal
import subprocess
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from support.arrivals import Arrivals
from support.full_stack import API, System, is_running
from support.object_history import History
from support.waiting import WAIT_SECONDS
from tranche_testcluster import free_port

logger = logging.getLogger(__name__)

PODS = "/api/v1/namespaces/default/pods"
JOBS = f"{API}/namespaces/default/trainingjobs"
LIMIT_SECONDS = 90.0
"""Longest failover on a slow machine that runs other tests; else it takes at most 15 s. The Lease expires after 8 s."""
ANSWER_SECONDS = 20.0
"""Longest time for an answer of an extender there."""


class Pair:
    """Both replicas, the leader and the follower."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.ports = {"scheduler": system.stack.port, "standby": free_port()}
        system.stack.start_scheduler("standby", self.ports["standby"])

    def process(self, name: str) -> "subprocess.Popen[bytes]":
        return self.system.stack.processes[name]

    def restart(self, name: str) -> None:
        """As a kubelet would when a container has ended."""
        self.process(name).wait(WAIT_SECONDS)
        self.system.stack.processes.pop(name)
        self.system.stack.start_scheduler(name, self.ports[name])

    def await_restart(self, name: str, reason: str) -> None:
        """Wait until the planner of a replica has ended for this reason and its supervisor has started another one."""
        log = self.system.stack.log(name)

        def restarted() -> bool:
            _, found, rest = log.read_text().rpartition(reason)
            return bool(found) and "waiting for the Lease" in rest

        self.system.until(f"the planner of {name} started again", restarted)


@pytest.fixture(scope="module")
def pair(system: System) -> Pair:
    return Pair(system)


@pytest.fixture
def history(system: System) -> Iterator[History]:
    with History(str(system.cluster.kubeconfig), PODS, JOBS) as made:
        yield made


def ask(port: int, verb: str, pod: dict[str, Any]) -> Any:
    """Return the answer of an extender to a request of kube-scheduler."""
    body = json.dumps({"Pod": pod, "NodeNames": ["edge-a-0", "edge-a-1", "edge-b-0"]}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/{verb}", body)
    with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as reply:
        return json.load(reply)


def begin_preemption(system: System, prefix: str, history: History) -> None:
    """Two workers of a large job run, and one of them is being stopped for a small one; it takes three seconds."""
    system.submit(f"{prefix}-large", chunks=2, seconds=100.0, zone="edge-a", checkpoint_seconds=3.0)
    system.until_running(f"{prefix}-large", 2)
    system.until_trained(f"{prefix}-large", 1)
    system.submit(f"{prefix}-small", seconds=1.0, zone="edge-a")

    def has_victim() -> bool:
        large = history.of(JOBS, f"{prefix}-large")
        return any(window["state"] == "Closing" for one in large for window in windows(one))

    system.until("a victim", has_victim)


def windows(job: dict[str, Any]) -> list[dict[str, Any]]:
    return list(job.get("status", {}).get("plan", {}).get("workers", ()))


def assert_nothing_was_done_twice(history: History) -> None:
    """Every attempt is one window, every chunk succeeded once, and no plan follows a newer one."""
    stamps: dict[str, tuple[int, int]] = {}
    opened: dict[tuple[str, int], tuple[Any, ...]] = {}
    for job in history.events[JOBS]:
        uid, plan = job["metadata"]["uid"], job.get("status", {}).get("plan")
        if plan is None:
            continue
        stamp = (plan["term"], plan["revision"])
        assert stamp >= stamps.get(uid, (0, 0)), f"{job['metadata']['name']}: {stamp} after {stamps[uid]}"
        stamps[uid] = stamp
        for window in plan.get("workers", ()):
            what = (window["index"], tuple(window["chunks"]))
            assert opened.setdefault((uid, window["attempt"]), what) == what
    succeeded = {
        pod["metadata"]["uid"]: (pod["metadata"]["labels"]["tranche.dev/job"], chunks(pod))
        for pod in history.events[PODS]
        if pod["status"].get("phase") == "Succeeded"
    }
    counts = Counter((job, chunk) for job, trained in succeeded.values() for chunk in trained.split(","))
    assert counts
    assert set(counts.values()) == {1}, counts


def chunks(pod: dict[str, Any]) -> str:
    variables = {v["name"]: v.get("value", "") for v in pod["spec"]["containers"][0]["env"]}
    return str(variables["TRANCHE_CHUNKS"])


def assert_all_succeed(system: System, names: list[str], long: str) -> None:
    """The jobs succeed, and a long one, whose workers end as soon as it is waited for."""
    for name in names:
        system.until_phase(name, "Succeeded")
    system.complete(long)
    names = [*names, long]
    for name in names:
        progress = system.status(name)["progress"]
        assert progress["failures"] == 0
    system.delete(*names)


def test_follower_answers_from_same_plans_and_writes_nothing(system: System, pair: Pair) -> None:
    leader = system.leader()
    assert leader == "scheduler"
    term = system.term()
    system.submit("asked", seconds=600.0, zone="edge-b")
    system.until_phase("asked", "Running")
    (pod,) = system.pods("asked")

    def agree() -> bool:
        """Both replicas have watches of their own, and estimates are written again each second."""
        answers, jobs = [], []
        for replica, port in pair.ports.items():
            answers.append([ask(port, verb, pod) for verb in ("filter", "prioritize")])
            jobs.append(system.read("jobs/default/asked", replica)["windows"])
        assert answers[0] == answers[1]
        assert answers[0][0]["NodeNames"] == ["edge-b-0"]
        assert jobs[0] == jobs[1]
        return bool(jobs[0])

    system.until("both agree", agree)
    system.complete("asked")
    assert (system.leader(), system.term()) == (leader, term)
    system.delete("asked")


def test_follower_reserves_room_for_planned_pods(system: System, pair: Pair) -> None:
    """A less important pod that requests all GPUs of a node is refused by both, until the planned window is over."""
    stranger = {
        "metadata": {"name": "stranger", "namespace": "default", "uid": "1"},
        "spec": {"priority": -1000, "containers": [{"name": "c", "resources": {"requests": {"nvidia.com/gpu": "8"}}}]},
    }

    def offered() -> list[bool]:
        return ["edge-b-0" in ask(port, "filter", stranger)["NodeNames"] for port in pair.ports.values()]

    system.until("no earlier pod is known any more", lambda: offered() == [True, True])
    operator = system.stack.processes["operator"]
    operator.send_signal(signal.SIGSTOP)  # no pod will be there to tell of the window
    try:
        system.submit("planned", zone="edge-b")
        system.until("both keep room", lambda: offered() == [False, False])
        assert not system.pods("planned")
    finally:
        operator.send_signal(signal.SIGCONT)
    system.until_phase("planned", "Succeeded")
    system.until("both offer it", lambda: offered() == [True, True])
    system.delete("planned")


def test_report_to_the_follower_reaches_the_leader(system: System, pair: Pair) -> None:
    server = {"containers": [{"name": "ps", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}
    system.submit("reported", seconds=600.0, zone="edge-b", parameterServers={"template": {"spec": server}})

    def reporter() -> dict[str, Any] | None:
        found = [pod for pod in system.pods("reported") if pod["metadata"]["labels"]["tranche.dev/role"] == "ps"]
        return found[0] if found and is_running(found[0]) else None

    def saved() -> list[float]:
        checkpoint = system.status("reported")["progress"].get("checkpoint", {})
        return [one["batches"] for one in checkpoint.get("running", ())]

    pod = system.until("the parameter server runs", reporter)
    system.until_phase("reported", "Running")
    token, attempt = system.pod_token(pod), int(pod["metadata"]["labels"]["tranche.dev/attempt"])
    leader = system.leader()
    (follower,) = pair.ports.keys() - {leader}
    for replica, batches in ((follower, 10.0), (leader, 20.0), (follower, 30.0)):
        body = {"attempt": attempt, "applied": {"0": batches}, "durable": {"0": batches}}
        assert system.report_when_known("reported", token, body, replica) == 204
        system.until(f"the ledger has {batches:g} batches", lambda batches=batches: saved() == [batches])  # type: ignore[misc]
    assert system.leader() == leader
    system.delete("reported")


def test_leader_killed_during_preemption_fails_over_in_time(system: System, pair: Pair, history: History) -> None:
    term, arrivals = system.term(), Arrivals(system, "kill", zone="edge-b")
    arrivals.submit_due()
    begin_preemption(system, "kill", history)
    killed = system.leader()
    pair.process(killed).kill()
    try:
        seconds = arrivals.until(lambda: system.has_plan_after(term), LIMIT_SECONDS)
        logger.info("failover after a kill: %.1f s, %d arrivals", seconds, len(arrivals.names))
        # The first plan of the new leader may be that of another job.
        system.until("one preemption counts", lambda: system.status("kill-large")["progress"]["preemptions"] == 1)
        assert_all_succeed(system, [*arrivals.names, "kill-small"], "kill-large")
        assert_nothing_was_done_twice(history)
    finally:
        pair.restart(killed)


def test_resumed_former_leader_is_refused_and_exits(system: System, pair: Pair, history: History) -> None:
    term, arrivals = system.term(), Arrivals(system, "stop", zone="edge-b")
    arrivals.submit_due()
    begin_preemption(system, "stop", history)
    stopped = system.leader()
    system.stack.signal(stopped, signal.SIGSTOP)
    try:
        seconds = arrivals.until(lambda: system.has_plan_after(term), LIMIT_SECONDS)
        logger.info("failover after a stop: %.1f s, %d arrivals", seconds, len(arrivals.names))
        assert system.leader() != stopped
    finally:
        system.stack.signal(stopped, signal.SIGCONT)
    pair.await_restart(stopped, "this planner is not the leader any more")
    assert_all_succeed(system, [*arrivals.names, "stop-small"], "stop-large")
    assert_nothing_was_done_twice(history)


def test_resumed_former_leader_without_newer_plan_exits_by_lease(system: System, pair: Pair) -> None:
    stopped = system.leader()
    system.stack.signal(stopped, signal.SIGSTOP)
    try:
        system.until("another leader", lambda: system.leader() not in (stopped, ""), LIMIT_SECONDS)
    finally:
        system.stack.signal(stopped, signal.SIGCONT)
    # Another process holds the Lease, or a renewal that was under way when this one was stopped has failed.
    pair.await_restart(stopped, "this planner is not the leader any more: Lease tranche-scheduler ")


def test_a_leader_that_is_asked_to_end_hands_over_at_once(system: System, pair: Pair) -> None:
    term, ended = system.term(), system.leader()
    began = time.monotonic()
    pair.process(ended).terminate()
    system.until("another leader", lambda: system.term() > term)
    logger.info("handed over in %.1f s", time.monotonic() - began)
    assert pair.process(ended).wait(WAIT_SECONDS) == 0
    system.submit("after", seconds=0.5)
    system.until_phase("after", "Succeeded")
    system.delete("after")
    pair.restart(ended)
