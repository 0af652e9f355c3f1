"""The watches that planner and extender share."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from tranche.kube.api.core_types import QuotaObject
from tranche.kube.api.resources import SiteObject, TrainingJob
from tranche.kube.client.client import ApiClient
from tranche.kube.client.reflector import Reflector
from tranche.kube.convert.pod_decoder import decode_pod
from tranche.kube.convert.pods_and_nodes import NodeObject, Pod
from tranche.runtime.supervision import run_for_ever

API = "/apis/tranche.dev/v1alpha1"


class Watches:
    """Reflectors of pods, nodes, TrainingJobs, Sites and ResourceQuotas."""

    def __init__(self, client: ApiClient, decode: Callable[[bytes], Pod] = decode_pod) -> None:
        self.pods: Reflector[Pod] = Reflector(client, "/api/v1/pods", decode)
        self.nodes: Reflector[NodeObject] = Reflector(client, "/api/v1/nodes", msgspec.json.Decoder(NodeObject).decode)
        self.jobs: Reflector[TrainingJob] = Reflector(client, f"{API}/trainingjobs", TrainingJob.model_validate_json)
        self.sites: Reflector[SiteObject] = Reflector(client, f"{API}/sites", SiteObject.model_validate_json)
        self.quotas: Reflector[QuotaObject] = Reflector(
            client, "/api/v1/resourcequotas", msgspec.json.Decoder(QuotaObject).decode
        )

    def by_kind(self, kind: str) -> Reflector[Any]:
        """The reflector of that name: pods, nodes, jobs, sites or quotas."""
        return dict(self)[kind]

    def __iter__(self) -> Iterator[tuple[str, Reflector[Any]]]:
        yield from (("pods", self.pods), ("nodes", self.nodes), ("jobs", self.jobs), ("sites", self.sites))
        yield ("quotas", self.quotas)

    def still(self) -> "Watches":
        """What is known now, without what comes; for planners on paper, which are never told of changes."""
        nobody: Any = None  # nothing is asked for
        copy = Watches(nobody)
        for kind, reflector in self:
            copy.by_kind(kind).store.update(reflector.store)
        return copy

    def unsynced(self) -> list[str]:
        """Which watches are not in step yet."""
        return [kind for kind, reflector in self if not reflector.has_synced]

    async def synced(self) -> None:
        """Return when all are in step."""
        await asyncio.gather(*(reflector.synced() for _, reflector in self))

    async def run(self) -> None:
        """Watch for ever."""
        await run_for_ever(**{kind: reflector.run() for kind, reflector in self})


def status_path(resource: TrainingJob) -> str:
    """Where the status of a job is written."""
    return f"{API}/namespaces/{resource.metadata.namespace}/trainingjobs/{resource.metadata.name}/status"
