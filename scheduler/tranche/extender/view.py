"""Read-only view of the cluster for the extender verbs: the stores of four watches and an index over them."""

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from tranche.extender.reservations import Reservations
from tranche.kube.api.core_types import NodeObject, Pod
from tranche.kube.api.names import GPU_RESOURCES, GpuResources
from tranche.kube.api.resources import SiteObject, TrainingJob
from tranche.kube.client.reflector import Stats
from tranche.kube.convert.site_membership import site_of

T = TypeVar("T")


class WatchedObjects(Protocol[T]):
    """The part of a reflector that the view uses."""

    @property
    def store(self) -> dict[str, T]:
        """Objects by key."""

    @property
    def stats(self) -> Stats:
        """Counters of the watch."""

    @property
    def age(self) -> float:
        """Seconds since the last data from the API server."""

    def subscribe(self, callback: Callable[[str, T | None, T | None], None]) -> None:
        """Call `callback` for every object in the store now and for every later change."""


class ViewSources(Protocol):
    """The four watches that a view reads."""

    @property
    def pods(self) -> WatchedObjects[Pod]:
        """All pods, of all namespaces."""

    @property
    def nodes(self) -> WatchedObjects[NodeObject]:
        """All nodes."""

    @property
    def jobs(self) -> WatchedObjects[TrainingJob]:
        """All TrainingJobs."""

    @property
    def sites(self) -> WatchedObjects[SiteObject]:
        """All Sites."""


class View:
    """View of the cluster, as recent as the watches."""

    def __init__(self, watches: ViewSources, gpu_resources: GpuResources = GPU_RESOURCES) -> None:
        self.gpu_resources = gpu_resources
        self.pods: Mapping[str, Pod] = watches.pods.store
        self.nodes: Mapping[str, NodeObject] = watches.nodes.store
        self.jobs: Mapping[str, TrainingJob] = watches.jobs.store
        self.sites: Mapping[str, SiteObject] = watches.sites.store
        self.reservations = Reservations(self.pods, self.jobs, gpu_resources)
        self._site_of: dict[str, str | None] = {}
        watches.nodes.subscribe(self.reservations.note_node)
        watches.pods.subscribe(self.reservations.note_pod)
        watches.jobs.subscribe(self.reservations.note_job)
        watches.nodes.subscribe(self._forget_node)
        watches.sites.subscribe(self._forget_sites)

    def site_of(self, name: str) -> str | None:
        """Return the site of a node; None if it has none or is unknown."""
        try:
            return self._site_of[name]
        except KeyError:
            node = self.nodes.get(name)
        if node is None:
            return None
        site = self._site_of[name] = site_of(node.metadata.labels, self.sites)
        return site

    def _forget_node(self, name: str, old: NodeObject | None, new: NodeObject | None) -> None:
        self._site_of.pop(name, None)

    def _forget_sites(self, name: str, old: SiteObject | None, new: SiteObject | None) -> None:
        self._site_of.clear()
