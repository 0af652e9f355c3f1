"""CPU time of the API server and etcd for each kind of request about a job, one request after the other.

``python benchmarks/request_costs.py`` takes about a minute. It sends the requests of the scheduler and the operator for
one-GPU jobs, with their accounts: creation, the status of the planner, that of the operator, the status of the planner
with times, a read, and an event. ``--crds FOLDER`` takes the definitions from another folder, such as those of another
version: definitions determine what a write of a status costs. Watches are not part of the figures.
"""

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any

from peers.ours import JOBS, training_job
from peers.usage import cpu_seconds
from tranche.demo.local_stack import SYSTEM_NAMESPACE, apply_manifests, await_kinds
from tranche.kube.api.names import OPERATOR_MANAGER, SCHEDULER_MANAGER
from tranche.kube.api.resources import TrainingJob
from tranche.kube.client.client import ApiClient
from tranche.kube.convert.trainingjob import plan_status, planned_condition, progress_status, status_object, to_job
from tranche.model import Interval, JobPlan, JobProgress, Window
from tranche_operator.reconcile.status import ConditionUpdate, PhaseUpdate, PodCounts, PodTimes, new_status
from tranche_testcluster import Cluster

EVENTS = "/api/v1/namespaces/default/events"
SERVER, STORE = "kube-apiserver", "etcd"
QUIET_SHARE, QUIET_SECONDS, LIMIT_SECONDS = 0.1, 3.0, 120.0
"""CPU share of the API server below which it is idle, the time for which it must be, and the longest wait for that."""


class Requests:
    """Requests about numbered jobs, from three accounts."""

    def __init__(self, user: ApiClient, scheduler: ApiClient, operator: ApiClient) -> None:
        self._user, self._scheduler, self._operator = user, scheduler, operator
        self._known: dict[int, TrainingJob] = {}

    async def create(self, number: int) -> None:
        """Create a job."""
        body = training_job(f"job-{number}", 1, 3600.0)
        self._known[number] = TrainingJob.model_validate(await self._user.request("POST", JOBS, body=body))

    async def plan(self, number: int, revision: int = 1, *, timed: bool = False) -> None:
        """Write the part of the status that the planner owns."""
        job_object, now = self._known[number], time.time()
        job, times = to_job(job_object), Interval(now, now + 60.0)
        window = Window(index=0, attempt=1, site="pool", node="pool-1", chunks=(0,), start=now, generation=1)
        plan = JobPlan(generation=1, explanation="runs on 1 GPU at pool", attempts=1, windows=(window,))
        if timed:
            plan = JobPlan(
                generation=1,
                explanation=plan.explanation,
                attempts=1,
                windows=(window,),
                estimated_start=now,
                estimated_completion=now,
                start_interval=times,
                completion_interval=times,
            )
        status = {
            "plan": plan_status(plan, job_object.metadata.uid, 1, revision),
            "progress": progress_status(JobProgress(), job, 0.0, estimated=True),
            "conditions": [planned_condition(plan, 1, job_object.status.conditions, now)],
        }
        await self._apply(self._scheduler, number, status_object(job_object, status), SCHEDULER_MANAGER)

    async def run(self, number: int) -> None:
        """Write the part of the status that the operator owns."""
        job_object = self._known[number]
        counts = PodCounts(active_workers=1, running_workers=1, any_pod=True, started=True, sites=("pool",))
        checked = ConditionUpdate("InvalidTemplate", "False", "Admitted", "the API server admits the pods")
        created = job_object.metadata.creation_timestamp
        assert created is not None
        phase, times = PhaseUpdate("Running", "WorkersRun", "workers run"), PodTimes(created, created)
        status = new_status(job_object, counts, phase, [checked], created, times)
        requests = {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1"}
        status["admitted"] = {"generation": 1, "pods": [{"role": "worker", "requests": requests}]}
        body = status_object(job_object, status, job_object.metadata.resource_version)
        await self._apply(self._operator, number, body, OPERATOR_MANAGER)

    async def read(self, number: int) -> None:
        """Read a job."""
        await self._operator.get(f"{JOBS}/job-{number}")

    async def report(self, number: int) -> None:
        """Create an event about a job."""
        job_object = self._known[number]
        about = {
            "kind": "TrainingJob",
            "namespace": "default",
            "name": job_object.metadata.name,
            "uid": job_object.metadata.uid,
        }
        body: dict[str, Any] = {
            "metadata": {"name": f"{job_object.metadata.name}.1", "namespace": "default"},
            "involvedObject": about,
            "type": "Normal",
            "reason": "WindowOpened",
            "message": "1 worker starts: 1 at pool",
            "source": {"component": OPERATOR_MANAGER},
        }
        await self._operator.request("POST", EVENTS, body=body)

    async def _apply(self, client: ApiClient, number: int, body: dict[str, Any], manager: str) -> None:
        answer = await client.apply(f"{JOBS}/job-{number}/status", body, manager)
        self._known[number] = TrainingJob.model_validate(answer)


async def await_idle(cluster: Cluster) -> None:
    """Wait until the API server has done what follows from new definitions."""
    pid, since, began = cluster.pid(SERVER), time.monotonic(), time.monotonic()
    while time.monotonic() - since < QUIET_SECONDS and time.monotonic() - began < LIMIT_SECONDS:
        before, at = cpu_seconds(pid), time.monotonic()
        await asyncio.sleep(0.5)
        if cpu_seconds(pid) - before > QUIET_SHARE * (time.monotonic() - at):
            since = time.monotonic()


async def measure(cluster: Cluster, kubeconfigs: list[Path], jobs: int) -> None:
    """Send each kind of request about all jobs, and print what one of them cost."""
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(ApiClient.connect(str(path))) for path in kubeconfigs]
        requests = Requests(*clients)
        kinds: dict[str, Callable[[int], Awaitable[None]]] = {
            "creation": requests.create,
            "status of the planner": requests.plan,
            "status of the operator": requests.run,
            "status of the planner with times": lambda number: requests.plan(number, 2, timed=True),
            "read": requests.read,
            "event": requests.report,
        }
        await await_idle(cluster)
        pids = [cluster.pid(name) for name in (SERVER, STORE)]
        print(f"| ms of CPU time for a request | {SERVER} | {STORE} |\n| :-- | --: | --: |")
        for name, send in kinds.items():
            before = [cpu_seconds(pid) for pid in pids]
            for number in range(jobs):
                await send(number)
            took = [1000 * (cpu_seconds(pid) - seconds) / jobs for pid, seconds in zip(pids, before, strict=True)]
            print(f"| {name} | {took[0]:.2f} | {took[1]:.2f} |", flush=True)
        stored = await clients[0].get(f"{JOBS}/job-0")
        print(f"\n{len(stored)} bytes of one job at the end")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=200, help="requests of each kind (%(default)s)")
    parser.add_argument("--crds", type=Path, help="folder of the definitions, such as manifests/crds")
    options = parser.parse_args()
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster())
        apply_manifests(cluster)
        if options.crds is not None:
            cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(options.crds))
            await_kinds(cluster)
        accounts = [f"tranche-{name}" for name in ("scheduler", "operator")]
        own = [cluster.service_account_kubeconfig(SYSTEM_NAMESPACE, account) for account in accounts]
        asyncio.run(measure(cluster, [cluster.kubeconfig, *own], options.jobs))


if __name__ == "__main__":
    main()
