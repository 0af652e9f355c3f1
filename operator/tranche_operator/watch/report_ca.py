"""CA certificates of the report API, which pods receive in an annotation and read as a file.

The kubelet updates the file when the annotation changes, so a pod that runs for months follows a change of the CA.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable

from tranche.kube.api.core_types import Pod
from tranche.kube.api.names import ANNOTATION_REPORT_CA
from tranche.kube.client.client import ApiClient, ApiError, Unreachable
from tranche_operator import api_paths
from tranche_operator.settings import ReportCa

logger = logging.getLogger(__name__)

CHECK_SECONDS = 60.0
FIRST_CHECK_SECONDS = 1.0
"""Time between two checks before the CA is published."""
FILE = "ca.crt"


async def follow(
    client: ApiClient,
    authority: ReportCa,
    namespace: str,
    config_map: str,
    pods: Callable[[], AsyncIterator[Pod]],
) -> None:
    """Read the ConfigMap forever, and give changed certificates to the pods that have earlier ones.

    Args:
        client: Client of the API server.
        authority: The certificates that new pods receive.
        namespace: Namespace of the ConfigMap.
        config_map: Name of the ConfigMap.
        pods: Returns all pods of TrainingJobs.
    """
    behind = True
    while True:
        try:
            behind = await _read(client, authority, namespace, config_map) or behind
            if behind and authority.pem:
                behind = not await _update(client, authority.pem, pods())
        except (ApiError, ValueError) as error:  # a pod of a list may be unreadable
            logger.warning("the CA of the report API cannot be read or given to pods: %s", error)
        await asyncio.sleep(CHECK_SECONDS if authority.pem else FIRST_CHECK_SECONDS)


async def _read(client: ApiClient, authority: ReportCa, namespace: str, config_map: str) -> bool:
    """Read the ConfigMap; return whether the certificates changed."""
    found = await client.request("GET", f"/api/v1/namespaces/{namespace}/configmaps/{config_map}")
    pem = str((found.get("data") or {}).get(FILE, ""))
    if not pem or pem == authority.pem:
        return False
    authority.pem = pem
    return True


async def _update(client: ApiClient, pem: str, pods: AsyncIterator[Pod]) -> bool:
    """Give the certificates to the pods, and return whether all of them have them.

    A policy may deny the update of one pod forever, which must not keep the certificates from the others.

    Raises:
        ApiError: if the pods cannot be listed, or the API server is unreachable.
    """
    failed, first = 0, ""
    async for pod in pods:
        if pod.metadata.annotations.get(ANNOTATION_REPORT_CA, pem) == pem:
            continue
        patch = {"metadata": {"uid": pod.metadata.uid, "annotations": {ANNOTATION_REPORT_CA: pem}}}
        path = api_paths.pod(pod.metadata.namespace, pod.metadata.name)
        try:
            await client.request("PATCH", path, body=patch, content_type="application/merge-patch+json")
        except Unreachable:
            raise
        except ApiError as error:
            if error.status not in (404, 409):
                failed, first = failed + 1, first or f"{pod.metadata.namespace}/{pod.metadata.name}: {error}"
    if failed:
        logger.warning("the CA of the report API cannot be given to %d pods, the first of them %s", failed, first)
    return not failed
