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
from support.full_stack import API, Whole, is_running
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

    def __init__(self, whole: Whole) -> None:
        self.whole = whole
        self.ports = {"scheduler": whole.stack.port, "standby": free_port()}
        whole.stack.start_scheduler("standby", self.ports["standby"])

    def process(self, name: str) -> "subprocess.Popen[bytes]":
        return self.whole.stack.processes[name]

    def restart(self, name: str) -> None:
        """As a kubelet would when a container has ended."""
        self.process(name).wait(WAIT_SECONDS)
        self.whole.stack.processes.pop(name)
        self.whole.stack.start_scheduler(name, self.ports[name])

    def await_restart(self, name: str, reason: str) -> None:
        """Wait until the planner of a replica has ended for this reason and its supervisor has started another one."""
        log = self.whole.stack.log(name)

        def restarted() -> bool:
            _, found, rest = log.read_text().rpartition(reason)
            return bool(found) and "waiting for the Lease" in rest

        self.whole.until(f"the planner of {name} started again", restarted)


@pytest.fixture(scope="module")
def pair(whole: Whole) -> Pair:
    return Pair(whole)


@pytest.fixture
def history(whole: Whole) -> Iterator[History]:
    with History(str(whole.cluster.kubeconfig), PODS, JOBS) as made:
        yield made


def ask(port: int, verb: str, pod: dict[str, Any]) -> Any:
    """Return the answer of an extender to a request of kube-scheduler."""
    body = json.dumps({"Pod": pod, "NodeNames": ["edge-a-0", "edge-a-1", "edge-b-0"]}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/{verb}", body)
    with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as reply:
        return json.load(reply)


def begin_preemption(whole: Whole, prefix: str) -> None:
    """Two workers of a large job run, and one of them is being stopped for a small one; it takes three seconds."""
    whole.submit(f"{prefix}-large", chunks=2, seconds=100.0, zone="edge-a", checkpoint_seconds=3.0)
    whole.until_running(f"{prefix}-large", 2)
    whole.until_trained(f"{prefix}-large", 1)
    whole.submit(f"{prefix}-small", seconds=1.0, zone="edge-a")
    whole.until("a victim", lambda: any(w["state"] == "Closing" for w in windows(whole.job(f"{prefix}-large"))))


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


def assert_all_succeed(whole: Whole, names: list[str], long: str) -> None:
    """The jobs succeed, and a long one, whose workers end as soon as it is waited for."""
    for name in names:
        whole.until_phase(name, "Succeeded")
    whole.complete(long)
    names = [*names, long]
    for name in names:
        progress = whole.status(name)["progress"]
        assert progress["failures"] == 0
    whole.delete(*names)


def test_follower_answers_from_same_plans_and_writes_nothing(whole: Whole, pair: Pair) -> None:
    leader = whole.leader()
    assert leader == "scheduler"
    term = whole.term()
    whole.submit("asked", seconds=600.0, zone="edge-b")
    whole.until_phase("asked", "Running")
    (pod,) = whole.pods("asked")

    def agree() -> bool:
        """Both replicas have watches of their own, and estimates are written again each second."""
        answers, jobs = [], []
        for replica, port in pair.ports.items():
            answers.append([ask(port, verb, pod) for verb in ("filter", "prioritize")])
            jobs.append(whole.read("jobs/default/asked", replica)["windows"])
        assert answers[0] == answers[1]
        assert answers[0][0]["NodeNames"] == ["edge-b-0"]
        assert jobs[0] == jobs[1]
        return bool(jobs[0])

    whole.until("both agree", agree)
    whole.complete("asked")
    assert (whole.leader(), whole.term()) == (leader, term)
    whole.delete("asked")


def test_follower_reserves_room_for_planned_pods(whole: Whole, pair: Pair) -> None:
    """A less important pod that requests all GPUs of a node is refused by both, until the planned window is over."""
    stranger = {
        "metadata": {"name": "stranger", "namespace": "default", "uid": "1"},
        "spec": {"priority": -1000, "containers": [{"name": "c", "resources": {"requests": {"nvidia.com/gpu": "8"}}}]},
    }

    def offered() -> list[bool]:
        return ["edge-b-0" in ask(port, "filter", stranger)["NodeNames"] for port in pair.ports.values()]

    whole.until("no earlier pod is known any more", lambda: offered() == [True, True])
    operator = whole.stack.processes["operator"]
    operator.send_signal(signal.SIGSTOP)  # no pod will be there to tell of the window
    try:
        whole.submit("planned", zone="edge-b")
        whole.until("both keep room", lambda: offered() == [False, False])
        assert not whole.pods("planned")
    finally:
        operator.send_signal(signal.SIGCONT)
    whole.until_phase("planned", "Succeeded")
    whole.until("both offer it", lambda: offered() == [True, True])
    whole.delete("planned")


def test_report_to_the_follower_reaches_the_leader(whole: Whole, pair: Pair) -> None:
    server = {"containers": [{"name": "ps", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}
    whole.submit("reported", seconds=600.0, zone="edge-b", parameterServers={"template": {"spec": server}})

    def reporter() -> dict[str, Any] | None:
        found = [pod for pod in whole.pods("reported") if pod["metadata"]["labels"]["tranche.dev/role"] == "ps"]
        return found[0] if found and is_running(found[0]) else None

    def saved() -> list[float]:
        checkpoint = whole.status("reported")["progress"].get("checkpoint", {})
        return [one["batches"] for one in checkpoint.get("running", ())]

    pod = whole.until("the parameter server runs", reporter)
    whole.until_phase("reported", "Running")
    token, attempt = whole.pod_token(pod), int(pod["metadata"]["labels"]["tranche.dev/attempt"])
    leader = whole.leader()
    (follower,) = pair.ports.keys() - {leader}
    for replica, batches in ((follower, 10.0), (leader, 20.0), (follower, 30.0)):
        body = {"attempt": attempt, "applied": {"0": batches}, "durable": {"0": batches}}
        assert whole.report_when_known("reported", token, body, replica) == 204
        whole.until(f"the ledger has {batches:g} batches", lambda batches=batches: saved() == [batches])  # type: ignore[misc]
    assert whole.leader() == leader
    whole.delete("reported")


def test_leader_killed_during_preemption_fails_over_in_time(whole: Whole, pair: Pair, history: History) -> None:
    term, arrivals = whole.term(), Arrivals(whole, "kill", zone="edge-b")
    arrivals.submit_due()
    begin_preemption(whole, "kill")
    killed = whole.leader()
    pair.process(killed).kill()
    try:
        seconds = arrivals.until(lambda: whole.has_plan_after(term), LIMIT_SECONDS)
        logger.info("failover after a kill: %.1f s, %d arrivals", seconds, len(arrivals.names))
        # The first plan of the new leader may be that of another job.
        whole.until("one preemption counts", lambda: whole.status("kill-large")["progress"]["preemptions"] == 1)
        assert_all_succeed(whole, [*arrivals.names, "kill-small"], "kill-large")
        assert_nothing_was_done_twice(history)
    finally:
        pair.restart(killed)


def test_resumed_former_leader_is_refused_and_exits(whole: Whole, pair: Pair, history: History) -> None:
    term, arrivals = whole.term(), Arrivals(whole, "stop", zone="edge-b")
    arrivals.submit_due()
    begin_preemption(whole, "stop")
    stopped = whole.leader()
    whole.stack.signal(stopped, signal.SIGSTOP)
    try:
        seconds = arrivals.until(lambda: whole.has_plan_after(term), LIMIT_SECONDS)
        logger.info("failover after a stop: %.1f s, %d arrivals", seconds, len(arrivals.names))
        assert whole.leader() != stopped
    finally:
        whole.stack.signal(stopped, signal.SIGCONT)
    pair.await_restart(stopped, "this planner is not the leader any more")
    assert_all_succeed(whole, [*arrivals.names, "stop-small"], "stop-large")
    assert_nothing_was_done_twice(history)


def test_resumed_former_leader_without_newer_plan_exits_by_lease(whole: Whole, pair: Pair) -> None:
    stopped = whole.leader()
    whole.stack.signal(stopped, signal.SIGSTOP)
    try:
        whole.until("another leader", lambda: whole.leader() not in (stopped, ""), LIMIT_SECONDS)
    finally:
        whole.stack.signal(stopped, signal.SIGCONT)
    pair.await_restart(stopped, "this planner is not the leader any more: Lease tranche-scheduler is held by")


def test_a_leader_that_is_asked_to_end_hands_over_at_once(whole: Whole, pair: Pair) -> None:
    term, ended = whole.term(), whole.leader()
    began = time.monotonic()
    pair.process(ended).terminate()
    whole.until("another leader", lambda: whole.term() > term)
    logger.info("handed over in %.1f s", time.monotonic() - began)
    assert pair.process(ended).wait(WAIT_SECONDS) == 0
    whole.submit("after", seconds=0.5)
    whole.until_phase("after", "Succeeded")
    whole.delete("after")
    pair.restart(ended)
