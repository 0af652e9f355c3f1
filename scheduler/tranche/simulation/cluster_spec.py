"""Simulated cluster: a pool of GPUs, or sites, nodes and links from a YAML file."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from tranche.estimate import LevelNetwork
from tranche.estimate.transfer_start import SHARED
from tranche.model import Link, Node, Resources, Site
from tranche.model.topology import Topology
from tranche.simulation.cluster_limit import MAX_GPUS, MAX_GPUS_PER_NODE, MAX_NODES, ClusterError
from tranche.simulation.scenario import NodeFailure

if TYPE_CHECKING:
    from tranche.simulation.cluster_file import ClusterFile, NodeSection, SiteSection

__all__ = ["GPU_LABEL", "ClusterError", "ClusterSpec", "network_text", "pool", "read_cluster"]

GPU_LABEL = "nvidia.com/gpu.product"
"""Label that carries a node's GPU kind, as NVIDIA's feature discovery sets it."""
AMPLE = Resources(cpu=10**9, memory=2**60, pods=10**6)
"""CPU, memory and pods that are never exhausted: a million cores, an exbibyte."""


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """Nodes, sites with their links, and failures."""

    name: str
    nodes: tuple[Node, ...]
    sites: tuple[Site, ...]
    failures: tuple[NodeFailure, ...] = ()
    topology: Topology = field(default_factory=Topology)
    """Topology levels of the nodes."""
    level_network: LevelNetwork | None = None
    """Links between the members of gangs by topology level; None: the file describes none."""


def network_text(spec: ClusterSpec, transfers: str = SHARED) -> str:
    """Return whether the network model is on; if so, the capacity of each topology level and the start rule."""
    if spec.level_network is None:
        return "off"
    levels = enumerate(spec.level_network.bits_per_second)
    links = ", ".join(f"{spec.topology.name(level)} {bits / 1e9:g} Gbit/s" for level, bits in levels)
    rule = rule_text(transfers)
    return f"on ({links}; {rule})" if rule else f"on ({links})"


def rule_text(transfers: str) -> str:
    """Return the start rule of transfers; empty without one."""
    return "" if transfers == SHARED else f"start rule of transfers {transfers}"


def pool(gpus: int) -> ClusterSpec:
    """Return a cluster of `gpus` GPUs on one node, on which logs without nodes are replayed.

    Raises:
        ClusterError: The number is outside the range that one node may have.
    """
    if not 1 <= gpus <= MAX_GPUS_PER_NODE:
        raise ClusterError(f"{gpus} GPUs: choose 1 to {MAX_GPUS_PER_NODE:,}")
    node = Node("pool", "pool", Resources(AMPLE.cpu, AMPLE.memory, gpus, AMPLE.pods), extended={}, labels={})
    return ClusterSpec(f"{gpus} GPUs", (node,), (Site("pool", links={}, labels={}),))


def read_cluster(path: Path) -> ClusterSpec:
    """Read a cluster from a YAML file; docs/samples/cluster.yaml explains it.

    A link counts for both directions unless the other site has one back. Nodes are named ``<site>-<n>``, counted from
    0 over all groups of the site.

    Raises:
        ClusterError: The file is invalid; one line names the file, the field and the allowed values.
    """
    from tranche.simulation.cluster_file import read_file, shown  # pydantic and yaml, which a pool does not need

    described = read_file(path)
    try:
        _check(described)
        nodes = tuple(node for site in described.sites for node in _nodes(site, described))
        failures = _failures(described, nodes)
    except ClusterError as error:
        raise ClusterError(f"{shown(path)}: {error}") from None
    spec = ClusterSpec(path.stem, nodes, tuple(_site(site) for site in described.sites), failures)
    if described.network is None:
        return spec
    levels = described.network.levels
    labels, capacities = tuple(level.label for level in levels[:-1]), tuple(float(level.bandwidth) for level in levels)
    return replace(spec, topology=Topology(labels), level_network=LevelNetwork(capacities))


def _check(described: "ClusterFile") -> None:
    """Check the rules that concern more than one section."""
    names: set[str] = set()
    for index, site in enumerate(described.sites):
        if site.name in names:
            raise ClusterError(f"sites[{index}].name: there is a site {site.name} already")
        names.add(site.name)
    for index, site in enumerate(described.sites):
        _check_links(site, names, f"sites[{index}].links")
        _check_kinds(site, described, f"sites[{index}].nodes")
    groups = [group for site in described.sites for group in site.nodes]
    nodes, gpus = sum(g.count for g in groups), sum(g.count * g.gpus for g in groups)
    if nodes > MAX_NODES:
        raise ClusterError(f"sites: {nodes:,} nodes, at most {MAX_NODES:,} are allowed")
    if gpus > MAX_GPUS:
        raise ClusterError(f"sites: {gpus:,} GPUs, at most {MAX_GPUS:,} are allowed")
    if not gpus and not any(site.unlimited for site in described.sites):
        raise ClusterError("sites: no node has a GPU and no site is unlimited, so no job can run")


def _check_links(site: "SiteSection", names: set[str], where: str) -> None:
    seen: set[str] = set()
    for index, link in enumerate(site.links):
        if link.to not in names:
            raise ClusterError(f"{where}[{index}].to: there is no site {link.to}")
        if link.to in seen:
            raise ClusterError(f"{where}[{index}].to: there is a link to {link.to} already")
        seen.add(link.to)


def _check_kinds(site: "SiteSection", described: "ClusterFile", where: str) -> None:
    for index, group in enumerate(site.nodes):
        if group.gpu is not None and group.gpu not in described.gpu_kinds:
            declared = ", ".join(sorted(described.gpu_kinds)) or "it is empty"
            raise ClusterError(f"{where}[{index}].gpu: {group.gpu!r} is not in gpuKinds ({declared})")


def _nodes(site: "SiteSection", described: "ClusterFile") -> Iterator[Node]:
    groups = (group for group in site.nodes for _ in range(group.count))
    for index, group in enumerate(groups):
        yield _node(f"{site.name}-{index}", site.name, group, described)


def _node(name: str, site: str, group: "NodeSection", described: "ClusterFile") -> Node:
    labels = dict(group.labels)
    if group.gpu is not None:
        labels[GPU_LABEL] = group.gpu
    return Node(
        name,
        site,
        Resources(group.cpu, group.memory, group.gpus, group.pods),
        extended={},
        labels=labels,
        speed=1.0 if group.gpu is None else described.gpu_kinds[group.gpu],
    )


def _site(site: "SiteSection") -> Site:
    return Site(
        site.name,
        site.tier,
        site.unlimited,
        {link.to: Link(float(link.bandwidth), link.latency) for link in site.links},
        site.node_startup,
        labels={},
    )


def _failures(described: "ClusterFile", nodes: tuple[Node, ...]) -> tuple[NodeFailure, ...]:
    names = {node.name for node in nodes}
    for index, failure in enumerate(described.failures):
        if failure.node not in names:
            raise ClusterError(
                f"failures[{index}].node: there is no node {failure.node[:80]!r}: nodes are named <site>-<n> from 0"
            )
    failures = tuple(
        NodeFailure(failure.node, failure.at, float("inf") if failure.until is None else failure.until)
        for failure in described.failures
    )
    for before, after in pairwise(sorted(failures, key=lambda failure: (failure.node, failure.at))):
        if before.node == after.node and after.at < before.until:
            away = f"from {before.at:g} " + (f"to {before.until:g}" if before.until < float("inf") else "on")
            raise ClusterError(f"failures: node {after.node} fails at {after.at:g}, but it is away {away}")
    return failures
