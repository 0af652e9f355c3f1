"""Faults of processes and nodes."""

import contextlib
import os
import random
import signal

from chaos.checks.eviction import Bound
from chaos.crowds import occupy
from chaos.labs import SITES, Begin, Lab, Undo, nodes_of
from chaos.workloads import fault_job
from tranche.demo.local_stack import KUBE_SCHEDULER
from tranche_testcluster import ClusterError

OUTAGE_SECONDS = (0.5, 4.0)
"""Duration of a fault of etcd or the API server; no other fault begins meanwhile, because all components need them."""
FULL_SECONDS = (1.0, 14.0)
"""Durations below and above that of a Lease."""
STEP_SECONDS = (1.0, 90.0)
SILENCE_SECONDS = (2.0, 18.0)
"""Durations below and above the time after which a node counts as lost and its pods are deleted."""


def _kill(name: str) -> Begin:
    def begin(lab: Lab, chance: random.Random) -> tuple[str, Undo]:
        lab.processes[name].kill()
        return f"kill -9 {name}", lab.processes[name].start

    return begin


def _freeze(name: str) -> Begin:
    def begin(lab: Lab, chance: random.Random) -> tuple[str, Undo]:
        lab.processes[name].freeze()
        return f"freeze {name}", lab.processes[name].thaw

    return begin


def kill_kube_scheduler(lab: Lab, chance: random.Random) -> tuple[str, Undo]:
    lab.cluster.stop(KUBE_SCHEDULER, signal.SIGKILL)
    return "kill -9 kube-scheduler", lambda: lab.cluster.start(KUBE_SCHEDULER)


def freeze_kube_scheduler(lab: Lab, chance: random.Random) -> tuple[str, Undo | None]:
    try:
        pid = lab.cluster.pid(KUBE_SCHEDULER)
    except ClusterError:  # another fault has killed it
        return "freeze kube-scheduler: it is dead", None
    os.kill(pid, signal.SIGSTOP)

    def thaw() -> None:
        with contextlib.suppress(ProcessLookupError):  # another fault has killed it meanwhile
            os.kill(pid, signal.SIGCONT)

    return "freeze kube-scheduler", thaw


def absent_kube_scheduler(lab: Lab, chance: random.Random) -> tuple[str, Undo]:
    """Freeze kube-scheduler while a job that ranks first waits; it may preempt once."""
    name = "urgent"
    occupy(lab, "before-urgent", 60.0)
    first = lab.revision()
    what, thaw = freeze_kube_scheduler(lab, chance)
    lab.fault_jobs.add(name)
    lab.submit(name, fault_job(name, gpus=2), "Succeeded")

    def undo() -> None:
        lab.bounds.append(Bound(name, 2, first, lab.revision()))
        if thaw is not None:
            thaw()

    return f"{what} while {name} waits", undo


def _outage(component: str, number: int) -> Begin:
    def begin(lab: Lab, chance: random.Random) -> tuple[str, None]:
        seconds = chance.uniform(*OUTAGE_SECONDS)
        if number == signal.SIGKILL:
            lab.cluster.stop(component, number)
            lab.wait(seconds)
            lab.cluster.start(component)
            return f"kill -9 {component}, back after {seconds:.1f} s", None
        pid = lab.cluster.pid(component)
        os.kill(pid, signal.SIGSTOP)
        lab.wait(seconds)
        os.kill(pid, signal.SIGCONT)
        return f"freeze {component} for {seconds:.1f} s", None

    return begin


def full_etcd(lab: Lab, chance: random.Random) -> tuple[str, None]:
    seconds = chance.uniform(*FULL_SECONDS)
    lab.cluster.set_etcd_full(full=True)
    lab.wait(seconds)
    lab.cluster.set_etcd_full(full=False)
    return f"no writes to etcd for {seconds:.1f} s", None


def _stepped_clock(name: str) -> Begin:
    def begin(lab: Lab, chance: random.Random) -> tuple[str, Undo | None]:
        clock, seconds = lab.clocks[name], chance.choice([-1, 1]) * chance.uniform(*STEP_SECONDS)
        if clock is None:
            return f"clock of {name}: no C compiler", None
        clock.step(seconds)
        return f"clock of {name} by {seconds:+.0f} s", lambda: clock.step(0.0)

    return begin


def second_scheduler(lab: Lab, chance: random.Random) -> tuple[str, Undo]:
    lab.processes["standby"].start()
    return "start a second scheduler", lab.processes["standby"].kill


def takeover(lab: Lab, chance: random.Random) -> tuple[str, Undo]:
    first, second = lab.processes["scheduler"], lab.processes["standby"]
    first.freeze()
    second.start()
    lab.wait(chance.uniform(3.0, 6.0))
    first.thaw()
    return "freeze the scheduler, start a second one, thaw the first", second.kill


def silent_node(lab: Lab, chance: random.Random) -> tuple[str, Undo | None]:
    site = lab.reserve_site(chance)
    if site is None:
        return "silent node: none left", None
    node, seconds = chance.choice(nodes_of(site)), chance.uniform(*SILENCE_SECONDS)

    def undo() -> None:
        lab.wait(max(0.0, seconds - 8.0))
        lab.cluster.revive(node)
        lab.release_site(site)

    try:
        lab.cluster.silence(node)
    except ClusterError:  # kwok does not respond, because it waits for a node that another fault has removed
        return f"silence node {node}, not for sure", undo

    return f"silence node {node}", undo


def drained_node(lab: Lab, chance: random.Random) -> tuple[str, Undo | None]:
    site = lab.reserve_site(chance)
    if site is None:
        return "drained node: none left", None
    node = chance.choice(nodes_of(site))
    path, kind = f"/api/v1/nodes/{node}", "application/merge-patch+json"
    lab.ask("PATCH", path, {"spec": {"unschedulable": True}}, kind)
    there = [one["metadata"]["name"] for one in lab.pods() if one["spec"].get("nodeName") == node]
    for name in there:
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "default"}}
        lab.cluster.request("POST", f"/api/v1/namespaces/default/pods/{name}/eviction", body)

    def undo() -> None:
        lab.ask("PATCH", path, {"spec": {"unschedulable": None}}, kind)
        lab.release_site(site)

    return f"drain node {node} ({len(there)} pods)", undo


def removed_site(lab: Lab, chance: random.Random) -> tuple[str, Undo | None]:
    site = lab.reserve_site(chance)
    if site is None:
        return "removed site: none left", None
    nodes, gpus = SITES[site]
    lab.cluster.remove_site(site)

    def undo() -> None:
        lab.cluster.add_site(site, nodes=nodes, gpus=gpus)
        lab.release_site(site)

    return f"remove the {nodes} nodes of site {site}", undo


FAULTS: dict[str, Begin] = {
    "kill scheduler": _kill("scheduler"),
    "freeze scheduler": _freeze("scheduler"),
    "kill operator": _kill("operator"),
    "freeze operator": _freeze("operator"),
    "kill kube-scheduler": kill_kube_scheduler,
    "freeze kube-scheduler": freeze_kube_scheduler,
    "absent kube-scheduler": absent_kube_scheduler,
    "kill API server": _outage("kube-apiserver", signal.SIGKILL),
    "freeze API server": _outage("kube-apiserver", signal.SIGSTOP),
    "kill etcd": _outage("etcd", signal.SIGKILL),
    "freeze etcd": _outage("etcd", signal.SIGSTOP),
    "full etcd": full_etcd,
    "stepped clock of scheduler": _stepped_clock("scheduler"),
    "stepped clock of operator": _stepped_clock("operator"),
    "second scheduler": second_scheduler,
    "takeover": takeover,
    "silent node": silent_node,
    "drained node": drained_node,
    "removed site": removed_site,
}
SECONDS = {"absent kube-scheduler": (50.0, 70.0)}
"""Shortest and longest duration of the faults that need more time than others to have an effect."""
