"""Faults caused by a tenant with rights in one namespace.

They are jobs that cannot run or fit on one node only, forged statuses, idle connections, large objects, and pods with
the label of a job.
"""

import contextlib
import random
import socket
import sys
import time
from typing import Any

from chaos.checks.eviction import Bound
from chaos.crowds import occupy
from chaos.labs import JOBS, MERGE, PODS, Begin, Lab, Undo, nodes_of
from chaos.workloads import fault_job
from support.kubelet_stand_in import IMAGE, NAME, waiting
from tranche.kube.convert.size_limit import MAX_TEMPLATE_BYTES

LARGEST_OBJECT = 1_572_864
"""Largest request that etcd accepts, in bytes."""
FIELDS_BYTES = range(800, 4_000, 100)
"""Sizes to try for the rest of the request, in bytes, until the API server accepts the job."""
LARGE_OBJECTS = 9
"""Number of jobs: more than the workers that the status writer once had."""
SOCKETS = 700
"""Connections to each port: more than the file descriptors of a process (`labs.DESCRIPTORS`)."""
PEERS = 50
"""Number of source addresses, so that the limit for each address has no effect."""
LISTEN_SECONDS = 60.0
"""Time in which a scheduler begins to listen on a slow machine."""
ONE_NODE = "cloud"
"""Site with a single node, which has several GPUs."""
HOST_PORT = 7777
TERMS = 2**31 - 1


def missing_claim(lab: Lab, chance: random.Random) -> tuple[str, Undo]:
    """Submit a job that ranks first and that no node can run; it may preempt two workers at most."""
    name = "misspelt"
    occupy(lab, "before-claim", 45.0)
    undo = _ends_with(lab, name)
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "nowhere"}}
    lab.fault_jobs.add(name)
    lab.submit(name, fault_job(name, gpus=2, pod={"volumes": [volume]}), "gone")
    return f"{name} has a claim that does not exist", undo


def _ends_with(lab: Lab, name: str) -> Undo:
    """Return the function that ends a fault: it deletes the job, which may have preempted two workers since now."""
    first = lab.revision()

    def undo() -> None:
        lab.bounds.append(Bound(name, 2, first, lab.revision()))
        lab.delete(name)

    return undo


def missing_resource_claim(lab: Lab, chance: random.Random) -> tuple[str, Undo]:
    """Submit a job that ranks first and that kube-scheduler cannot place, because its resource claim does not exist.

    Meanwhile another job that ranks before the running workers must start.
    """
    name, other = "claimless", "after-claimless"
    occupy(lab, "before-claimless", 60.0)
    undo = _ends_with(lab, name)
    lab.fault_jobs.update((name, other))
    claim = {"name": "nic", **chance.choice(({"resourceClaimName": "none"}, {"resourceClaimTemplateName": "none"}))}
    lab.submit(name, fault_job(name, gpus=2, pod={"resourceClaims": [claim]}), "gone")
    lab.submit(other, fault_job(other), "Succeeded")
    return f"{name} has a resource claim that does not exist", undo


def one_place(lab: Lab, chance: random.Random) -> tuple[str, Undo | None]:
    """Submit a job that ranks first and of which only one pod fits on its node: the second preemption fails."""
    name, (node,) = "lonely", nodes_of(ONE_NODE)
    if node in lab.reserved_nodes:
        return f"one place: {node} is not there", None
    lab.reserved_nodes.add(node)
    occupy(lab, "before-lonely", 60.0)
    end = _ends_with(lab, name)
    lab.fault_jobs.add(name)
    what, pod, port = chance.choice((("host port", {}, HOST_PORT), ("anti-affinity", _apart_from(name), None)))
    lab.submit(name, fault_job(name, site=ONE_NODE, chunks=3, seconds=100.0, pod=pod, host_port=port), "gone")

    def undo() -> None:
        end()
        lab.reserved_nodes.discard(node)

    return f"the pods of {name} have one place on {node} ({what})", undo


def _apart_from(job: str) -> dict[str, Any]:
    """Return the fields of a pod with an anti-affinity to the other pods of its job."""
    selector = {"labelSelector": {"matchLabels": {"tranche.dev/job": job}}, "topologyKey": "kubernetes.io/hostname"}
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [selector]}}}


def bad_image(lab: Lab, chance: random.Random) -> tuple[str, Undo]:
    """Submit a job with an invalid image name, which may preempt one worker and must fail by its own template.

    A dry run admits its pod. The failure comes late if the pod waits for a victim that hangs.
    """
    name = "typo"
    lab.fault_jobs.add(name)
    lab.bounds.append(Bound(name, 1, lab.revision(), sys.maxsize))
    body = fault_job(name, annotations={"start-seconds": "100000"}, runPolicy={"backoffLimit": 0})
    lab.submit(name, body, "Failed")

    def fail_image() -> None:
        with contextlib.suppress(OSError):
            status, found = lab.cluster.request("GET", f"{PODS}?labelSelector=tranche.dev/job={name}")
            for pod in found["items"] if status == 200 else ():
                _wait_for_image(lab, pod)

    lab.periodic.append(fail_image)
    return f"{name} has an image of no valid name", lambda: None


def _wait_for_image(lab: Lab, pod: dict[str, Any]) -> None:
    states = [one.get("state", {}) for one in pod["status"].get("containerStatuses", ())]
    if pod["status"]["phase"] != "Pending" or "deletionTimestamp" in pod["metadata"]:
        return
    if any(state.get("waiting", {}).get("reason") in ("ContainerCreating", IMAGE) for state in states):
        status = waiting(pod, NAME, "couldn't parse image name: invalid reference format")
        body = {"metadata": {"resourceVersion": pod["metadata"]["resourceVersion"]}, "status": status}
        lab.cluster.request("PATCH", f"{PODS}/{pod['metadata']['name']}/status", body, MERGE)


def forged_plan(lab: Lab, chance: random.Random) -> tuple[str, Undo]:
    """Write a term above that of every leader into the status of the tenant's own job."""
    name = "forger"
    lab.fault_jobs.add(name)
    lab.submit(name, fault_job(name, seconds=60.0, high=False), "gone")
    lab.until(lambda: "plan" in lab.jobs().get(name, {}).get("status", {}), 10.0)
    plan = lab.jobs().get(name, {}).get("status", {}).get("plan", {"term": 0, "revision": 0})
    forged = chance.choice([{"term": plan["term"] + 1}, {"term": TERMS}, {"revision": 2**62}])
    status, _ = lab.ask("PATCH", f"{JOBS}/{name}/status", {"status": {"plan": forged}}, MERGE)
    return f"{name} writes {forged} into its plan ({status})", lambda: lab.delete(name)


def garbled_job(lab: Lab, chance: random.Random) -> tuple[str, Undo]:
    """Change a running job, and at once again to a template that is too large for the planner."""
    name = "garbled"
    lab.fault_jobs.add(name)
    lab.submit(name, fault_job(name, seconds=60.0), "gone")
    lab.until(lambda: bool(lab.jobs().get(name, {}).get("status", {}).get("plan", {}).get("workers")), 10.0)
    lab.ask("PATCH", f"{JOBS}/{name}", {"spec": {"suspend": True}}, MERGE)
    time.sleep(0.005)
    template = {"metadata": {"annotations": {"note": "x" * MAX_TEMPLATE_BYTES}}}
    status, _ = lab.ask("PATCH", f"{JOBS}/{name}", {"spec": {"workers": {"template": template}}}, MERGE)
    return f"{name} gets a template of more than 256 KiB ({status})", lambda: lab.delete(name)


def large_objects(lab: Lab, chance: random.Random) -> tuple[str, Undo]:
    """Create jobs so large that etcd has no room for their status."""
    made, refused = [], 0
    for number in range(LARGE_OBJECTS):
        name = f"large-{number}"
        for fields in FIELDS_BYTES:
            size = LARGEST_OBJECT - fields
            status = lab.cluster.request("POST", JOBS, _large(name, size))[0]
            if status == 201:
                lab.fault_jobs.add(name)
                lab.expected[name] = "gone"
                made.append(size)
            refused += status != 201
            if status != 500:  # the response if etcd rejects the size
                break

    def undo() -> None:
        for number in range(len(made)):
            lab.delete(f"large-{number}")

    return f"{len(made)} jobs of {made[:1]} bytes, {refused} were refused", undo


def _large(name: str, size: int) -> dict[str, Any]:
    body = fault_job(name, high=False)
    body["spec"]["workers"]["template"]["spec"]["containers"][0]["env"] = [{"name": "BIG", "value": "x" * size}]
    return body


def idle_connections(lab: Lab, chance: random.Random) -> tuple[str, Undo]:
    """Open connections that send nothing to each port that other pods can reach, from many addresses."""
    opened: list[socket.socket] = []

    def connect(port: int) -> bool:
        source = f"127.0.1.{1 + len(opened) % PEERS}"
        with contextlib.suppress(OSError):
            opened.append(socket.create_connection(("127.0.0.1", port), timeout=2.0, source_address=(source, 0)))
            return True
        return False

    counts = {}
    for name, port in lab.ports.items():
        before = len(opened)
        lab.until(lambda port=port: connect(port), LISTEN_SECONDS)  # type: ignore[misc]
        while len(opened) < before + SOCKETS and connect(port):
            pass
        counts[name] = len(opened) - before

    def undo() -> None:
        for one in opened:
            one.close()

    return f"idle connections: {counts}", undo


def labelled_pod(lab: Lab, chance: random.Random) -> tuple[str, Undo]:
    """Create pods that have the label of a job and belong to none, on free GPUs."""
    resources = {"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}}
    spec = {
        "schedulerName": "tranche",
        "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "c", "image": "x", "resources": resources}],
    }
    names = [f"stranger-{number}" for number in range(2)]
    for name in names:
        labels = {"tranche.dev/job": "strange", "tranche.dev/role": "worker"}
        # No second try: another fault may deny all pods, and does not end before this function does.
        with contextlib.suppress(OSError):
            lab.cluster.request("POST", PODS, {"metadata": {"name": name, "labels": labels}, "spec": spec})

    def undo() -> None:
        for name in names:
            lab.ask("DELETE", f"{PODS}/{name}")

    return "pods of a stranger with the label of a job", undo


def kept_pods(lab: Lab, chance: random.Random) -> tuple[str, Undo]:
    """Submit a job that fails by its deadline and keeps its pods (`cleanPodPolicy: None`)."""
    name = "keeper"
    lab.fault_jobs.add(name)
    policy = {"activeDeadlineSeconds": 3, "cleanPodPolicy": "None", "backoffLimit": 0}
    lab.submit(name, fault_job(name, site="edge-b", chunks=2, seconds=600.0, runPolicy=policy), "gone")
    return f"{name} keeps its pods when its deadline is over", lambda: lab.delete(name)


FAULTS: dict[str, Begin] = {
    "missing claim": missing_claim,
    "missing resource claim": missing_resource_claim,
    "one place": one_place,
    "bad image": bad_image,
    "forged plan": forged_plan,
    "garbled job": garbled_job,
    "large objects": large_objects,
    "idle connections": idle_connections,
    "labelled pod": labelled_pod,
    "kept pods": kept_pods,
}
SECONDS = {
    "missing claim": (45.0, 55.0),
    "missing resource claim": (55.0, 65.0),
    "one place": (60.0, 70.0),
    "large objects": (8.0, 15.0),
    "idle connections": (15.0, 20.0),
    "labelled pod": (25.0, 35.0),
    "kept pods": (30.0, 40.0),
}
"""Shortest and longest duration of the faults that need more time than others to have an effect."""
