"""Foreign resource usage per node, and conversion of nodes to planner nodes."""

from collections.abc import Mapping

from tranche.kube.memberships import site_of
from tranche.kube.names import LABEL_JOB, LABEL_ROLE, ROLE_STAGING
from tranche.kube.objects import NodeObject, Pod, is_over, node_of, pod_requests
from tranche.kube.resources import SiteObject
from tranche.model import Node, Resources


class NodeBook:
    """Sums of the requests of foreign pods per node, updated from watch changes."""

    def __init__(self, gpu_resource: str) -> None:
        self.gpu_resource = gpu_resource
        self._foreign: dict[str, Resources] = {}
        self._pods: dict[str, tuple[str, Resources]] = {}

    def note_pod(self, key: str, pod: Pod | None) -> set[str]:
        """Record the state of a pod (None: gone) and return the nodes whose foreign usage changed."""
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
        """Convert a node; None if no declared Site selects it, or an unlimited one does.

        The autoscaler creates and removes the nodes of an unlimited site on demand. If they were planned as nodes,
        their capacity would count twice, and windows would refer to nodes that no longer exist.
        """
        site = site_of(observed.metadata.labels, sites)
        if site is None or (site in sites and sites[site].spec.unlimited):
            return None
        foreign = self.foreign(observed.metadata.name)
        return node_of(observed, site, foreign, self.gpu_resource)

    def foreign(self, name: str) -> Resources:
        """Return the requests of foreign pods on a node."""
        return self._foreign.get(name, Resources())


def _is_planned(pod: Pod) -> bool:
    """Whether the planner chose the pod's node; for a staging pod it chooses only the site."""
    labels = pod.metadata.labels
    return LABEL_JOB in labels and labels.get(LABEL_ROLE) != ROLE_STAGING
