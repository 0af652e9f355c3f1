"""Objects that the API server accepts are planned, run, or refused with a reason; none stops scheduler or operator."""

import itertools
import logging
from typing import Any

import pytest

from support.full_stack import API, System
from support.fuzzed_objects import Jobs, node, quota, site, spec_schema
from support.structural_objects import SEED, drawn

logger = logging.getLogger(__name__)
NAMESPACE = "/api/v1/namespaces/default"
CONDITIONS = {"Planned", "InvalidTemplate"}
"""One of the scheduler's, one of the operator's: both have looked at the job."""
FAULTS = ("Traceback", " ERROR ", " CRITICAL ", "Error: ", "reconcile failed")
FORESEEN = "cannot be read: "
"""Message of the scheduler about an object that it leaves out; if it is a job, the job's condition has it too."""
BATCH = 20


@pytest.fixture(scope="module", autouse=True)
def _printed_seed() -> None:
    logger.warning("SEED=%s", SEED)


def faults(system: System) -> list[str]:
    """Lines of the logs that report an unexpected exception."""
    lines = itertools.chain(*(system.stack.log(name).read_text().splitlines() for name in system.stack.processes))
    return [line for line in lines if any(fault in line for fault in FAULTS) and FORESEEN not in line]


def goes_on(system: System) -> None:
    """A valid job completes, and no process has failed on an unexpected object or restarted."""
    system.submit("sound", chunks=2, seconds=0.3)
    system.until_phase("sound", "Succeeded")
    system.delete("sound")
    assert faults(system) == []
    assert all(process.poll() is None for process in system.stack.processes.values())


def told(job: dict[str, Any]) -> bool:
    """Return whether both processes have reported on the present generation of the job."""
    generation = job["metadata"]["generation"]
    conditions = job.get("status", {}).get("conditions", ())
    return {one["type"] for one in conditions if one.get("observedGeneration") == generation} >= CONDITIONS


def admitted(system: System, path: str, body: dict[str, Any], seed: str) -> bool:
    """Return whether the API server takes it."""
    status, answer = system.cluster.request("POST", path, body)
    assert status in (201, 400, 403, 422), (seed, answer)
    return bool(status == 201)


def clear(system: System, path: str) -> None:
    """Delete all that there are, and wait until they are gone."""
    system.cluster.request("DELETE", path)
    system.until(f"{path} empty", lambda: not system.cluster.request("GET", path)[1]["items"])


def test_jobs_of_any_specification(system: System) -> None:
    path, taken = f"{API}/namespaces/default/trainingjobs", 0
    wanted = list(drawn(60, Jobs(), "jobs"))
    for first in range(0, len(wanted), BATCH):
        specs: dict[str, tuple[str, Any]] = {}
        for number, (seed, spec) in enumerate(wanted[first : first + BATCH], first):
            body = {"apiVersion": "tranche.dev/v1alpha1", "kind": "TrainingJob", "spec": spec}
            body["metadata"] = {"name": f"fuzz-{number}"}
            if admitted(system, path, body, seed):
                specs[f"fuzz-{number}"] = (seed, spec)

        def untold(specs: dict[str, tuple[str, Any]] = specs) -> list[str]:
            items = system.cluster.request("GET", path)[1]["items"]
            return [item["metadata"]["name"] for item in items if not told(item)]

        try:
            system.until("all reported", lambda: not untold())
        except AssertionError:
            logger.warning("untold: %s; %s", [specs[name] for name in untold()], faults(system)[:20])
            raise
        taken += len(specs)
        clear(system, path)
        system.until("their pods gone", lambda: not system.cluster.request("GET", f"{NAMESPACE}/pods")[1]["items"])
        goes_on(system)
    assert taken > len(wanted) // 3


def test_sites_nodes_and_quotas_of_any_kind(system: System) -> None:
    schema = spec_schema("sites")
    paths = {"nodes": "/api/v1/nodes", "sites": f"{API}/sites", "quotas": f"{NAMESPACE}/resourcequotas"}
    taken = dict.fromkeys(paths, 0)

    def body(kind: str, name: str, random: Any) -> dict[str, Any]:
        if kind == "nodes":
            return node(random, name)
        if kind == "quotas":
            return quota(random, name)
        api = {"apiVersion": "tranche.dev/v1alpha1", "kind": "Site"}
        return {**api, "metadata": {"name": name}, "spec": site(random, schema)}

    for kind, path in paths.items():
        for number, (seed, made) in enumerate(drawn(30, lambda random: random, kind)):
            taken[kind] += admitted(system, path, body(kind, f"fuzz-{number}", made), seed)
    assert all(count > 5 for count in taken.values()), taken
    system.submit("among", chunks=1, seconds=0.3)
    system.until("told", lambda: told(system.job("among")))
    system.delete("among")
    for kind in ("sites", "quotas"):
        clear(system, paths[kind])
    selector = "type!=kwok"
    system.cluster.request("DELETE", f"{paths['nodes']}?labelSelector={selector}")
    goes_on(system)
