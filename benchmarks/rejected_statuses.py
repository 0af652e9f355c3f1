"""Delay of good jobs beside jobs whose status the API server never takes, on a real control plane.

``python benchmarks/rejected_statuses.py`` takes about a minute. In one namespace, a ValidatingAdmissionPolicy denies
every write of a TrainingJob's status. 1,000 jobs are submitted there, and then 100 in another namespace. All jobs ask
for one GPU, and there are GPUs for the good ones only, so that the rejected ones must give up what is planned for them.

Exits with 1 if a bound of ranges.toml is broken.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from peers.ours import training_job
from ranges import all_kept
from tranche.demo.local_stack import API, Stack, apply_manifests
from tranche.kube.client.client import ApiClient, ApiError
from tranche_testcluster import Cluster

REJECTED, GOOD, GPUS = 1000, 100, 8
SUBMITTERS = 16
LIMIT_SECONDS = 120.0
LABEL = {"reject-statuses": "yes"}
POLICIES = "/apis/admissionregistration.k8s.io/v1"


def policy() -> list[tuple[str, dict[str, Any]]]:
    """Return the policy that denies statuses, and its binding."""
    rule = {
        "apiGroups": ["tranche.dev"],
        "apiVersions": ["*"],
        "operations": ["UPDATE"],
        "resources": ["trainingjobs/status"],
    }
    constraints = {"resourceRules": [rule], "namespaceSelector": {"matchLabels": LABEL}}
    denies = {"validations": [{"expression": "false", "message": "no status here"}], "matchConstraints": constraints}
    kinds = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": "reject-statuses"}}
    binding = {"policyName": "reject-statuses", "validationActions": ["Deny"]}
    return [
        (f"{POLICIES}/validatingadmissionpolicies", {**kinds, "kind": "ValidatingAdmissionPolicy", "spec": denies}),
        (
            f"{POLICIES}/validatingadmissionpolicybindings",
            {**kinds, "kind": "ValidatingAdmissionPolicyBinding", "spec": binding},
        ),
    ]


def jobs_of(namespace: str) -> str:
    """Return the path of the namespace's jobs."""
    return f"{API}/namespaces/{namespace}/trainingjobs"


async def submit(client: ApiClient, namespace: str, count: int) -> None:
    """Submit jobs of one GPU and one hour."""
    pending = list(range(count))

    async def work() -> None:
        while pending:
            name = f"job-{pending.pop()}"
            body = training_job(name, 1, 3600.0)
            body["metadata"]["namespace"] = namespace
            await client.request("POST", jobs_of(namespace), body=body)

    await asyncio.gather(*(work() for _ in range(SUBMITTERS)))


async def prepared(client: ApiClient) -> None:
    """Create the namespaces and the policy, and wait until it denies a status."""
    for name, labels in (("rejected", LABEL), ("good", {})):
        await client.request("POST", "/api/v1/namespaces", body={"metadata": {"name": name, "labels": labels}})
    for path, body in policy():
        await client.request("POST", path, body=body)
    body = training_job("probe", 1, 3600.0)
    body["metadata"]["namespace"] = "rejected"
    body["spec"]["suspend"] = True
    await client.request("POST", jobs_of("rejected"), body=body)
    patch = {"status": {"sites": "probe"}}
    deadline = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < deadline:
        path, kind = f"{jobs_of('rejected')}/probe/status", "application/merge-patch+json"
        try:
            await client.request("PATCH", path, body=patch, content_type=kind)
        except ApiError:
            return
        await asyncio.sleep(0.2)
    raise RuntimeError("the policy does not deny statuses")


async def counted(client: ApiClient, phase: str) -> tuple[int, int]:
    """Return how many good jobs have a plan with a window, and how many are in the phase."""
    items = (await client.request("GET", jobs_of("good")))["items"]
    statuses = [item.get("status", {}) for item in items]
    planned = sum(bool(status.get("plan", {}).get("workers")) for status in statuses)
    return planned, sum(status.get("phase") == phase for status in statuses)


async def measure(cluster: Cluster, rejected: int, good: int) -> tuple[float, float]:
    """Return the seconds from the last submission until all good jobs are planned, and until all run."""
    async with ApiClient.connect(str(cluster.kubeconfig)) as client:
        await prepared(client)
        await submit(client, "rejected", rejected)
        await submit(client, "good", good)
        began, planned_at, running_at = time.monotonic(), float("inf"), float("inf")
        while time.monotonic() - began < LIMIT_SECONDS and running_at == float("inf"):
            planned, running = await counted(client, "Running")
            now = time.monotonic() - began
            if planned == good:
                planned_at = min(planned_at, now)
            if running == good:
                running_at = now
            await asyncio.sleep(0.1)
        return planned_at, running_at


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rejected", type=int, default=REJECTED, help="jobs whose status is denied (%(default)s)")
    parser.add_argument("--good", type=int, default=GOOD, help="other jobs (%(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, Cluster(Path(scratch)) as cluster:
        cluster.add_site("pool", nodes=-(-options.good // GPUS), gpus=GPUS)
        apply_manifests(cluster)
        with Stack(cluster):
            planned, running = asyncio.run(measure(cluster, options.rejected, options.good))
    print(f"{options.good} good jobs beside {options.rejected} rejected ones:")
    print(f"all planned after {planned:.1f} s, all running after {running:.1f} s")
    if (options.rejected, options.good) == (REJECTED, GOOD):
        sys.exit(not all_kept({"rejected statuses, seconds until 100 good jobs are planned": planned}))


if __name__ == "__main__":
    main()
