"""Which site a node belongs to and what foreign pods use of it, kept as watches report changes."""

from collections.abc import Mapping

from tranche.kube.api.names import LABEL_JOB, LABEL_ROLE, ROLE_STAGING
from tranche.kube.api.resources import SiteObject
from tranche.kube.convert.pods_and_nodes import NodeObject, Pod, is_over, node_of, pod_requests
from tranche.kube.convert.site_membership import site_of
from tranche.model import Node, Resources


class NodeBook:
    """Nodes as the planner wants them: with their site and the sum of what pods ask that it gave no node."""

    def __init__(self, gpu_resource: str) -> None:
        self.gpu_resource = gpu_resource
        self._foreign: dict[str, Resources] = {}
        self._pods: dict[str, tuple[str, Resources]] = {}

    def note_pod(self, key: str, pod: Pod | None) -> set[str]:
        """Enter a pod's present state (None: gone) and return the nodes whose foreign use changed by it."""
        before = self._pods.pop(key, None)
        after = None
        if pod is not None and pod.spec.node_name and not _is_planned(pod) and not is_over(pod):
            after = (pod.spec.node_name, pod_requests(pod, self.gpu_resource))
            self._pods[key] = after
        if before == after:
            return set()
        for entry, add in ((before, False), (after, True)):
            if entry is not None:
                node, requests = entry
                used = self._foreign.get(node, Resources())
                self._foreign[node] = used + requests if add else used - requests
        return {entry[0] for entry in (before, after) if entry is not None}

    def node(self, observed: NodeObject, sites: Mapping[str, SiteObject]) -> Node | None:
        """The planner's node; None if Sites are declared and the node belongs to none of them, or to an unlimited one.

        An autoscaler makes and removes the nodes of an unlimited site, as pods ask for them: offered as places, they
        would count twice, and windows planned for one would keep its name when it is gone.
        """
        site = site_of(observed.metadata.labels, sites)
        if site is None or (site in sites and sites[site].spec.unlimited):
            return None
        foreign = self.foreign(observed.metadata.name)
        return node_of(observed, site, foreign, self.gpu_resource)

    def foreign(self, name: str) -> Resources:
        """What pods that it gave no node ask for on a node."""
        return self._foreign.get(name, Resources())


def _is_planned(pod: Pod) -> bool:
    """Whether the planner chose the pod's node; of a staging pod it says the site only."""
    labels = pod.metadata.labels
    return LABEL_JOB in labels and labels.get(LABEL_ROLE) != ROLE_STAGING
