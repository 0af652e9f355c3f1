"""Faults of the kubelet of one node: its pods fail, are refused, get no image or do not stop; the node reboots."""

import random
import uuid
from collections.abc import Callable
from typing import Any

from chaos.checks.node_visit import Visits
from chaos.crowds import GPUS, submit_crowd
from chaos.labs import MERGE, PODS, SITES, Begin, Lab, Undo, nodes_of
from support.kubelet_stand_in import Kubelet, Play, crash, ended, hang, no_image, refuse
from tranche_testcluster import ClusterError

REFUSALS = ("UnexpectedAdmissionError", "TopologyAffinityError", "NodeAffinity", "OutOfcpu", "NodeShutdown")
RETURNS = 4
"""Largest number of pods of one member on the only node of a site during a fault: after 0, 10, 30 and 70 s."""
TRIES = 4


def _reserve_node(lab: Lab, chance: random.Random) -> tuple[str, str] | None:
    """Reserve a site; return it with one of its nodes, or None if every site is reserved."""
    site = lab.reserve_site(chance)
    return None if site is None else (site, chance.choice(nodes_of(site)))


def _delete_pods(lab: Lab, node: str) -> None:
    """Wait until workers run on the node, and delete them."""

    def there() -> list[dict[str, Any]]:
        return [
            one for one in lab.pods() if one["spec"].get("nodeName") == node and one["status"]["phase"] == "Running"
        ]

    lab.until(lambda: bool(there()), 10.0)
    for pod in there():
        lab.ask("DELETE", f"{PODS}/{pod['metadata']['name']}")


def _kubelet_fault(
    what: str, choose: Callable[[random.Random], Play], *, stop: bool = False, tries: int | None = None
) -> Begin:
    """Return a fault of the kubelet of one node, with enough jobs that some of their pods run there.

    Args:
        what: Description for the log.
        choose: Returns the behavior of the kubelet.
        stop: Whether to delete the pods that run there.
        tries: Largest number of pods that may be bound there, in addition to two for each GPU; None: any number. The
            only node of a site is not excluded for one namespace: there, each member may have `RETURNS` pods.
    """

    def begin(lab: Lab, chance: random.Random) -> tuple[str, Undo | None]:
        taken = _reserve_node(lab, chance)
        if taken is None:
            return f"{what}: no node left", None
        site, node = taken
        kubelet = Kubelet(lab.cluster, node, choose(chance))
        try:
            kubelet.take()
            lab.periodic.append(kubelet.tend)
        except ClusterError:
            lab.cluster.revive(node)
            lab.release_site(site)
            raise
        submit_crowd(lab, f"{what.split()[0]}-crowd", GPUS + 4, 8.0, runPolicy={"backoffLimit": 2})
        first = lab.revision()
        if stop:
            _delete_pods(lab, node)

        def undo() -> None:
            if tries is not None:
                nodes, gpus = SITES[site]
                most = RETURNS if nodes == 1 else tries + 2 * gpus
                lab.visits.append(Visits(node, most, first, lab.revision(), of_each_member=nodes == 1))
            lab.periodic.remove(kubelet.tend)
            kubelet.release()
            lab.release_site(site)

        return f"{what} {node}", undo

    return begin


def rebooted_node(lab: Lab, chance: random.Random) -> tuple[str, None]:
    """Give a node another boot ID, and end its containers, as a reboot does."""
    taken = _reserve_node(lab, chance)
    if taken is None:
        return "reboot a node: none left", None
    site, node = taken
    lab.ask("PATCH", f"/api/v1/nodes/{node}/status", {"status": {"nodeInfo": {"bootID": str(uuid.uuid4())}}}, MERGE)
    there = [one for one in lab.pods() if one["spec"].get("nodeName") == node and one["status"]["phase"] == "Running"]
    for pod in there:
        body = {
            "metadata": {"resourceVersion": pod["metadata"]["resourceVersion"]},
            "status": ended(pod, 255, "Unknown"),
        }
        lab.ask("PATCH", f"{PODS}/{pod['metadata']['name']}/status", body, MERGE)
    lab.release_site(site)
    return f"reboot {node} ({len(there)} pods)", None


FAULTS: dict[str, Begin] = {
    "bad GPU": _kubelet_fault("failing containers on", lambda chance: crash, tries=TRIES),
    "refusing kubelet": _kubelet_fault("refused pods on", lambda chance: refuse(chance.choice(REFUSALS)), tries=TRIES),
    "unreachable registry": _kubelet_fault("missing images on", lambda chance: no_image),
    "hanging pods": _kubelet_fault("hanging pods on", lambda chance: hang, stop=True),
    "rebooted node": rebooted_node,
}
SECONDS = {"bad GPU": (25.0, 40.0), "refusing kubelet": (20.0, 40.0), "hanging pods": (35.0, 50.0)}
"""Shortest and longest duration of the faults that need more time than others to have an effect."""
