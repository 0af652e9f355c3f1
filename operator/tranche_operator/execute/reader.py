"""Reader of the input of one reconcile: the job, from the cache or the API server, and its pods from the cache."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec

from tranche.kube.api.core_types import Metadata, Pod
from tranche.kube.api.names import FINALIZER_ORPHAN, LABEL_JOB
from tranche.kube.api.resources import SiteSpec, TrainingJob
from tranche.kube.api.site_decoder import decode_new_site
from tranche.kube.client.client import ApiClient, ApiError
from tranche.kube.convert.pod_identity import owner_uid
from tranche_operator import api_paths
from tranche_operator.execute.reconciler_cache import ReconcilerCache
from tranche_operator.manifests import pod as manifests
from tranche_operator.manifests.checkpoint_volume import awaits_directory, mounted_directory
from tranche_operator.manifests.environment import is_alone
from tranche_operator.reconcile.observed import Observed, PodView, ServiceState, Wait, entries_of
from tranche_operator.reconcile.pod_creation import missing_pods, needs_site
from tranche_operator.reconcile.status import NO_TIMES
from tranche_operator.watch.pod_decoder import read_pods, view

PAGE = 500
SERVICE_SECONDS = 60.0
"""Time after which a Service is read again, which bounds how long a deleted one stays unnoticed."""


SITE_SECONDS = 30.0
"""Time after which a declared Site is read again."""
SHORT_SECONDS = 3.0
"""The same for a Site whose labels a pod gets, since they may have changed, and for one that is not declared."""
REFRESHING_SECONDS = 1.0
"""Time during which other reconciles use what is known of a Site that is being read again."""


def _utc() -> datetime:
    return datetime.now(UTC)


def decode_job(raw: Mapping[str, Any]) -> TrainingJob | None:
    """Decode a TrainingJob; None, as for one that is gone, if that fails and it is being deleted with its pods.

    After a rollback, a job may have values that only the newer release knows. A deletion in the foreground ends when
    its pods are gone, and these keep their finalizer until they are released.

    Raises:
        ValueError: it cannot be decoded, and its pods may have to stay.
    """
    try:
        return TrainingJob.model_validate(raw)
    except ValueError:
        metadata = raw["metadata"]
        if metadata.get("deletionTimestamp") is None or FINALIZER_ORPHAN in (metadata.get("finalizers") or ()):
            raise
        return None


def _serves(service: Mapping[str, Any], job: TrainingJob) -> bool:
    """Return whether a Service has the labels and the specification of the job's own.

    A restore from a backup and ``kubectl delete --cascade=orphan`` remove the owner of a Service, and the API server
    refuses a second one of the name.
    """
    wanted, spec = manifests.service(job), service.get("spec") or {}
    has_labels = wanted["metadata"]["labels"].items() <= (service["metadata"].get("labels") or {}).items()
    former = {**wanted["spec"], "selector": manifests.former_selector(job)}
    return has_labels and any(one.items() <= spec.items() for one in (wanted["spec"], former))


class Reader:
    """Reader of jobs and their pods."""

    def __init__(self, client: ApiClient, cache: ReconcilerCache, now: Callable[[], datetime] = _utc) -> None:
        self._client = client
        self._cache = cache
        self._now = now

    async def observe(self, key: str, *, fresh: bool = True) -> Observed:
        """Read the complete input of a job's reconcile.

        Args:
            key: ``namespace/name`` of the job.
            fresh: Whether to read the job from the API server, and not from the cache.

        Raises:
            ApiError: if a request fails.
            ValueError: if a response cannot be decoded.
        """
        namespace, _, name = key.partition("/")
        known = self._cache.pods
        # The pods first: a pod may be gone once it has left the plan, but never before.
        pods = known.of(key) if known.complete else await self._pods(namespace, name)
        job = None if fresh or not known.complete else self._known_job(key)
        may_create = self._may_create(pods)
        if job is not None and not may_create:
            missing = missing_pods(self.combine(key, job, pods), job, entries_of(job), self._now())
            job = None if missing else job
        is_fresh = job is None
        if job is None:
            job = await self._job(namespace, name)
        if job is None:
            return Observed(key, None, pods)
        self._cache.note_job(key, job.metadata.uid)
        observed = self.combine(key, job, pods, is_fresh=is_fresh, may_create=is_fresh or may_create)
        if awaits_directory(job) and job.metadata.deletion_timestamp is None:
            observed = replace(observed, mounted=await self._mounted(job, pods))
        entries = entries_of(job)
        if not entries or job.metadata.deletion_timestamp is not None:
            return observed
        opening: dict[str, bool] = {}
        for entry in missing_pods(observed, job, entries, self._now()).values():
            opening[entry.site] = opening.get(entry.site, False) or needs_site(entry)
        asked = (self._site(name, needed=needed) for name, needed in opening.items())
        service, specs = await asyncio.gather(self._service(job), asyncio.gather(*asked))
        sites = dict(zip(opening, specs, strict=True))
        declared = {name: found for name, found in sites.items() if found is not None}
        return replace(observed, service=service, sites=declared)

    def _may_create(self, pods: tuple[PodView, ...]) -> bool:
        """Return whether the pods of a job may be created by the plan in the cache.

        Pods of a plan that has just changed are stopped again at once. Those of a job that has pods are created by a
        plan that was read after these pods: what has ended and been counted must not be created again.
        """
        return not pods and self._cache.jobs.is_current(time.monotonic())

    def combine(
        self,
        key: str,
        job: TrainingJob | None,
        pods: tuple[PodView, ...],
        *,
        is_fresh: bool = True,
        may_create: bool = True,
    ) -> Observed:
        """Combine a job and pods that were read already with the cached results."""
        cache = self._cache
        return Observed(
            key,
            job,
            pods,
            verdict=cache.verdicts.get(key),
            rejection=cache.rejections.get(key),
            staging_rejection=cache.staging_rejections.get(key),
            refusals=dict(cache.refusals.get(key, {})),
            reported=frozenset(cache.reported.get(key, ())),
            wait=cache.waits.get(key, Wait()),
            times=cache.times.get(key, NO_TIMES),
            is_forbidden=key in cache.forbidden,
            is_fresh=is_fresh,
            may_create=may_create,
        )

    async def all_jobs(self) -> AsyncIterator[dict[str, Any]]:
        """Yield all TrainingJobs as JSON, page by page.

        Raises:
            ApiError: as in `observe`.
        """
        page = ""
        while True:
            answer = await self._client.request("GET", api_paths.ALL_JOBS, params={"limit": PAGE, "continue": page})
            for item in answer.get("items", ()):
                yield item
            page = answer.get("metadata", {}).get("continue", "")
            if not page:
                return

    async def all_pods(self) -> AsyncIterator[Pod]:
        """Yield all pods with the label of a job.

        Raises:
            ApiError: as in `observe`.
        """
        page = ""
        while True:
            params: dict[str, str | int] = {"labelSelector": LABEL_JOB, "limit": PAGE, "continue": page}
            answer = read_pods(await self._client.get(api_paths.ALL_PODS, **params))
            for pod in answer.items:
                yield pod
            page = answer.metadata.next_page
            if not page:
                return

    def _known_job(self, key: str) -> TrainingJob | None:
        """Return a job from the cache; None if it is not there or cannot be decoded, so that it is read again."""
        try:
            return self._cache.jobs.get(key)
        except ValueError:
            return None

    async def _job(self, namespace: str, name: str) -> TrainingJob | None:
        try:
            raw = await self._client.request("GET", api_paths.job(namespace, name))
            self._cache.jobs.note(f"{namespace}/{name}", raw)
            return decode_job(raw)
        except ApiError as error:
            if error.status != 404:
                raise
            # Without the CRD, the response is a 404 too. Treating that as a deleted job would delete its pods.
            if f'"{name}" not found' in error.message:
                self._cache.jobs.drop(f"{namespace}/{name}")
                return None
            raise ApiError(
                error.status, "NotServed", f"the API server does not serve TrainingJobs: {error.message}"
            ) from error

    async def _pods(self, namespace: str, name: str) -> tuple[PodView, ...]:
        raw = await self._client.get(api_paths.pods(namespace), labelSelector=f"{LABEL_JOB}={name}")
        return tuple(view(pod) for pod in read_pods(raw).items)

    async def _mounted(self, job: TrainingJob, pods: tuple[PodView, ...]) -> str | None:
        """Return the directory of the checkpoint volume that the first pod of the job mounts; None without one.

        The cache has no mounts of pods. They are needed only if the status of a job with pods was lost.
        """
        for pod in (pod for pod in pods if pod.owner == job.metadata.uid):
            try:
                found = await self._client.request("GET", api_paths.pod(job.metadata.namespace, pod.name))
            except ApiError as error:
                if error.status != 404:
                    raise
                continue
            return mounted_directory(found)
        return None

    async def _service(self, job: TrainingJob) -> ServiceState:
        """Return the state of the job's Service: absent until it was created or found, then cached for a while.

        That of a job that needs none is not read.
        """
        if is_alone(job):
            return ServiceState.ABSENT
        uid, at = self._cache.services.get(job.key, ("", 0.0))
        if uid != job.metadata.uid:
            return ServiceState.ABSENT
        if time.monotonic() - at < SERVICE_SECONDS:
            return ServiceState.OWN
        found = await self._read_service(job)
        if found is ServiceState.OWN:
            self._cache.services[job.key] = (job.metadata.uid, time.monotonic())
        return found

    async def _read_service(self, job: TrainingJob) -> ServiceState:
        path = f"{api_paths.services(job.metadata.namespace)}/{job.metadata.name}"
        try:
            found = await self._client.request("GET", path)
        except ApiError as error:
            if error.status == 404:
                return ServiceState.ABSENT
            raise
        metadata = msgspec.convert(found.get("metadata"), Metadata)
        owner = owner_uid(metadata)
        if owner is not None and owner != job.metadata.uid:
            return ServiceState.STALE
        if owner is None:
            is_free = not any(reference.controller for reference in metadata.owner_references)
            if not (is_free and _serves(found, job)):
                return ServiceState.FOREIGN
        is_former = found.get("spec", {}).get("selector") == manifests.former_selector(job)
        return ServiceState.OUTDATED if is_former else ServiceState.OWN

    async def _site(self, name: str, *, needed: bool) -> SiteSpec | None:
        """Return a Site, from the cache while it is valid.

        Args:
            name: Name of the Site.
            needed: Whether a pod gets its labels.
        """
        known, read_at = self._cache.sites.get(name, (None, float("-inf")))
        now, lifetime = time.monotonic(), SITE_SECONDS if known is not None and not needed else SHORT_SECONDS
        if now < read_at + lifetime and not (known is None and needed):
            return known
        if name in self._cache.sites:  # only this reconcile reads it, others use what is known
            self._cache.sites[name] = (known, now - lifetime + REFRESHING_SECONDS)
        found = None
        try:
            found = decode_new_site(await self._client.get(api_paths.site(name))).spec
        except ApiError as error:
            if error.status != 404:
                raise
        self._cache.sites[name] = (found, time.monotonic())
        return found
