"""Extender, planner and API are processes of their own: what happens to one does not affect the others."""

import json
import random
import resource
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from support.full_stack import LEASES, System
from support.installed_cluster import installed_cluster
from support.object_history import History
from support.stopped_process import stopped
from tranche.demo.local_stack import Stack
from tranche_testcluster import free_port, spawn

PROCESSES = ("extender", "planner", "api")
ANSWER_SECONDS = 20.0
"""Longest time for an answer on a machine that runs other tests."""
STRANGER = {
    "metadata": {"name": "stranger", "namespace": "default", "uid": "1"},
    "spec": {"priority": 0, "containers": [{"name": "c", "resources": {"requests": {"nvidia.com/gpu": "1"}}}]},
}


def offered(port: int) -> list[str]:
    """Nodes that the extender on a port leaves for a pod of another workload; none without an answer."""
    body = json.dumps({"Pod": STRANGER, "NodeNames": ["edge-a-0", "edge-b-0"]}).encode()
    try:
        with urllib.request.urlopen(
            urllib.request.Request(f"http://127.0.0.1:{port}/filter", body), timeout=ANSWER_SECONDS
        ) as reply:
            return list(json.load(reply)["NodeNames"])
    except OSError:
        return []


def report_status(system: System) -> int:
    """Status of a report without a token; 0 without an answer."""
    url = f"{system.stack.report_url}/v1/jobs/default/none/progress"
    try:
        with urllib.request.urlopen(urllib.request.Request(url, b"{}"), timeout=ANSWER_SECONDS) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


@pytest.mark.parametrize("name", PROCESSES)
def test_kill_of_one_process_leaves_the_others_running(system: System, name: str) -> None:
    system.until("three processes", lambda: set(system.children()) == set(PROCESSES))
    system.submit(f"long-{name}", seconds=4.0, zone="edge-b")
    system.submit(f"short-{name}", seconds=1.0, zone="edge-b")
    before = system.children()
    subprocess.run(["sleep", str(random.uniform(0, 2))], check=True)  # any moment of the path
    subprocess.run(["kill", "-9", str(before[name])], check=True)
    if name != "extender":
        assert offered(system.stack.port)
    if name != "api":
        system.until("the API answers", lambda: report_status(system) == 401)
    for job in (f"long-{name}", f"short-{name}"):
        progress = system.until_phase(job, "Succeeded")["progress"]
        assert progress.get("failures", 0) == 0
    system.until("it runs again", lambda: name in system.children())
    after = system.children()
    assert {one for one in PROCESSES if after[one] == before[one]} == set(PROCESSES) - {name}
    system.until("all answer", lambda: offered(system.stack.port) and report_status(system) == 401)
    system.delete(f"long-{name}", f"short-{name}")


def test_extender_keeps_reservations_while_planner_is_stopped(system: System) -> None:
    with stopped(system.children()["planner"]):
        assert offered(system.stack.port) == ["edge-a-0", "edge-b-0"]


class Limited:
    """tranche with at most 300 open files in each process, and one more extender with a port for metrics."""

    def __init__(self, system: System) -> None:
        self.system = system
        stack = system.stack
        planner = stack.commands["scheduler"]
        self.extender_port = free_port()
        self.ports = {
            "reports": stack.report_port,
            "planner API": int(planner[planner.index("--planner-port") + 1]),
            "planner metrics": stack.planner_ports["scheduler"],
            "API metrics": stack.api_ports["scheduler"],
            "extender metrics": free_port(),
            "operator": stack.health_port,
        }
        command = ["--port", str(self.extender_port), "--metrics-port", str(self.ports["extender metrics"])]
        config = planner[planner.index("--kubeconfig") : planner.index("--kubeconfig") + 2]
        self.command = with_few_files([sys.executable, "-m", "tranche", "extender", *config, *command])

    def is_ready(self, port: int) -> bool:
        """Return whether a new client receives an answer of a probe."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=ANSWER_SECONDS) as reply:
                return bool(reply.status == 200)
        except urllib.error.HTTPError:  # an API without this path
            return True
        except OSError:
            return False


def with_few_files(command: list[str]) -> list[str]:
    return ["sh", "-c", 'ulimit -n 300; exec "$@"', "sh", *command]


@pytest.fixture(scope="module")
def limited() -> Iterator[Limited]:
    with installed_cluster() as cluster:
        cluster.add_site("edge-a", nodes=1, gpus=1)
        cluster.add_site("edge-b", nodes=1, gpus=8)
        made = Stack(cluster)
        scheduler, operator = made.scheduler_command, made.operator_command
        made.scheduler_command = lambda *words: with_few_files(scheduler(*words))  # type: ignore[method-assign]
        made.operator_command = lambda *words: with_few_files(operator(*words))  # type: ignore[method-assign]
        with made as stack:
            found = Limited(System(cluster, stack))
            extender = spawn(found.command, log=cluster.directory / "extender.log")
            try:
                found.system.until("the extender is ready", lambda: found.is_ready(found.extender_port))
                yield found
            finally:
                extender.terminate()
                extender.wait()


@pytest.mark.parametrize(
    "port", ["reports", "planner API", "planner metrics", "API metrics", "extender metrics", "operator"]
)
def test_idle_connections_to_one_port_leave_others_served(limited: Limited, port: str) -> None:
    system = limited.system
    name = f"beside-{port.replace(' ', '-').lower()}"
    with ExitStack() as opened, History(str(system.cluster.kubeconfig), LEASES) as history:
        renewed = system.lease()["spec"]["renewTime"]
        for number in range(400):
            connection = opened.enter_context(socket.socket())
            connection.bind((f"127.0.1.{1 + number % 50}", 0))
            connection.connect(("127.0.0.1", limited.ports[port]))
        assert offered(system.stack.port)
        assert offered(limited.extender_port)
        assert report_status(system) == 401
        assert all(limited.is_ready(one) for one in limited.ports.values())
        system.submit(name, seconds=1.0)
        system.until_phase(name, "Succeeded")
        system.until("the Lease is renewed", lambda: system.lease()["spec"]["renewTime"] > renewed)
        with urllib.request.urlopen(f"{system.stack.url}/readyz", timeout=ANSWER_SECONDS) as reply:
            assert reply.status == 200
        assert {one["spec"]["leaseTransitions"] for one in history.events[LEASES]} == {1}
    system.delete(name)
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 500, "the test itself opened all"
