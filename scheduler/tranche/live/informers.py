"""Watches of the cluster."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from tranche.kube.api.core_types import NodeObject, Pod, QuotaObject
from tranche.kube.api.job_decoder import decode_job, decode_new_job
from tranche.kube.api.resources import SiteObject, TrainingJob
from tranche.kube.api.site_decoder import decode_new_site
from tranche.kube.client.client import ApiClient
from tranche.kube.client.reflector import Reflector
from tranche.kube.convert.pod_decoder import decode_pod
from tranche.runtime.supervision import run_until_first_exit

API = "/apis/tranche.dev/v1alpha1"


@dataclass(frozen=True, slots=True)
class ClusterObjects:
    """The objects that a planner is restored from, each kind by ``namespace/name`` or, if cluster-scoped, by name."""

    pods: Mapping[str, Pod]
    nodes: Mapping[str, NodeObject]
    jobs: Mapping[str, TrainingJob]
    sites: Mapping[str, SiteObject]
    quotas: Mapping[str, QuotaObject]

    def snapshot(self) -> "ClusterObjects":
        """Return a copy that later changes of the stores do not affect."""
        return ClusterObjects(dict(self.pods), dict(self.nodes), dict(self.jobs), dict(self.sites), dict(self.quotas))


class Informers:
    """Reflectors of pods, nodes, TrainingJobs, Sites and, for a planner, ResourceQuotas."""

    def __init__(
        self, client: ApiClient, decode: Callable[[bytes], Pod] = decode_pod, *, with_quotas: bool = True
    ) -> None:
        """Create the reflectors; nothing is read before `run`.

        Args:
            client: Client of the API server.
            decode: Decodes a pod.
            with_quotas: Watch ResourceQuotas too.
        """
        self._with_quotas = with_quotas
        self.pods: Reflector[Pod] = Reflector(client, "/api/v1/pods", decode)
        self.nodes: Reflector[NodeObject] = Reflector(client, "/api/v1/nodes", msgspec.json.Decoder(NodeObject).decode)
        self.jobs: Reflector[TrainingJob] = Reflector(
            client, f"{API}/trainingjobs", decode_job, decode_new=decode_new_job
        )
        self.sites: Reflector[SiteObject] = Reflector(
            client, f"{API}/sites", SiteObject.model_validate_json, decode_new=decode_new_site
        )
        self.quotas: Reflector[QuotaObject] = Reflector(
            client, "/api/v1/resourcequotas", msgspec.json.Decoder(QuotaObject).decode
        )

    def by_kind(self, kind: str) -> Reflector[Any]:
        """Return the reflector of a kind: pods, nodes, jobs, sites or quotas."""
        return dict(self)[kind]

    def __iter__(self) -> Iterator[tuple[str, Reflector[Any]]]:
        yield from (("pods", self.pods), ("nodes", self.nodes), ("jobs", self.jobs), ("sites", self.sites))
        if self._with_quotas:
            yield ("quotas", self.quotas)

    @property
    def objects(self) -> ClusterObjects:
        """The stores themselves: they change while the watches run."""
        return ClusterObjects(self.pods.store, self.nodes.store, self.jobs.store, self.sites.store, self.quotas.store)

    def unsynced(self) -> list[str]:
        """Return the names of the watches that are not synced yet."""
        return [kind for kind, reflector in self if not reflector.has_synced]

    async def synced(self) -> None:
        """Wait until all watches are synced."""
        await asyncio.gather(*(reflector.synced() for _, reflector in self))

    async def run(self) -> None:
        """Run all watches forever."""
        await run_until_first_exit(**{kind: reflector.run() for kind, reflector in self})


def status_path(resource: TrainingJob) -> str:
    """Return the API path of the status of a job."""
    return f"{API}/namespaces/{resource.metadata.namespace}/trainingjobs/{resource.metadata.name}/status"
