"""Which site a node belongs to and what foreign pods use of it, kept as watches report changes."""

from collections.abc import Iterator, Mapping

from tranche.kube.names import LABEL_JOB
from tranche.kube.objects import NodeObject, Pod, is_over, node_of, pod_requests
from tranche.kube.resources import SiteObject
from tranche.model import Node, Resources

DEFAULT_SITE = "cluster"
"""The one site of a cluster without Site objects."""


class NodeBook:
    """Nodes as the planner wants them: with their site and the sum of what pods that are not ours ask."""

    def __init__(self, gpu_resource: str) -> None:
        self.gpu_resource = gpu_resource
        self._foreign: dict[str, Resources] = {}
        self._pods: dict[str, tuple[str, Resources]] = {}

    def note_pod(self, key: str, pod: Pod | None) -> set[str]:
        """Enter a pod's present state (None: gone) and return the nodes whose foreign use changed by it."""
        before = self._pods.pop(key, None)
        after = None
        if pod is not None and pod.spec.node_name and LABEL_JOB not in pod.metadata.labels and not is_over(pod):
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
        """The planner's node; None if Sites are declared and the node belongs to none of them."""
        site = site_of(observed, sites)
        if site is None:
            return None
        foreign = self._foreign.get(observed.metadata.name, Resources())
        return node_of(observed, site, foreign, self.gpu_resource)


def site_of(observed: NodeObject, sites: Mapping[str, SiteObject]) -> str | None:
    """The first site, by name, whose selector matches the node's labels."""
    if not sites:
        return DEFAULT_SITE
    return next((name for name, site in sorted(sites.items()) if _matches(observed, site)), None)


def nodes_of_sites(
    nodes: Mapping[str, NodeObject], sites: Mapping[str, SiteObject]
) -> Iterator[tuple[str, list[NodeObject]]]:
    """The nodes of each declared site."""
    members: dict[str, list[NodeObject]] = {name: [] for name in sites}
    for observed in nodes.values():
        site = site_of(observed, sites)
        if site in members:
            members[site].append(observed)
    yield from members.items()


def _matches(observed: NodeObject, site: SiteObject) -> bool:
    labels = observed.metadata.labels
    return all(labels.get(key) == value for key, value in site.spec.node_selector.items())
