"""Pods that wait for a volume which an earlier pod of their job holds on a node that does not respond.

A claim with the access mode ReadWriteOnce stays attached there until the earlier pod is gone, since no kubelet detaches
it. The wait is no failure of the job, nor of the node on which the next pod waits.
"""

from collections.abc import Collection, Mapping

from tranche.kube.api.core_types import Pod
from tranche.kube.convert.pod_identity import owner_uid
from tranche.kube.convert.pod_state import is_over

Attempt = tuple[str, int]
"""Key of a job, and number of the attempt."""


class VolumeWaits:
    """Attempts whose pods wait, or have waited, for such a volume."""

    def __init__(self, pods: Mapping[str, Pod]) -> None:
        self._pods = pods
        self._silent: frozenset[str] = frozenset()
        self._holders: set[str | None] | None = None
        """UIDs of the jobs with claims on nodes that do not respond, computed at most once per check."""
        self._waited: set[Attempt] = set()

    def begin(self, silent: frozenset[str]) -> None:
        """Begin a check, in which these nodes do not respond."""
        self._silent, self._holders = silent, None

    def waits(self, attempt: Attempt, pod: Pod) -> bool:
        """Return whether a volume of the pod may be attached to a node that does not respond, and note it if so."""
        if not _has_claim(pod) or not self._silent:
            return False
        if self._holders is None:
            there = (one for one in self._pods.values() if one.spec.node_name in self._silent)
            self._holders = {owner_uid(one.metadata) for one in there if _has_claim(one) and not is_over(one)}
        if owner_uid(pod.metadata) not in self._holders:
            return False
        self._waited.add(attempt)
        return True

    def has_waited(self, attempt: Attempt) -> bool:
        """Return whether the pod has waited in an earlier check, so that its time to start begins again."""
        return attempt in self._waited

    def forget_others(self, attempts: Collection[Attempt]) -> None:
        """Forget attempts except these."""
        self._waited.intersection_update(attempts)


def _has_claim(pod: Pod) -> bool:
    return any(volume.persistent_volume_claim is not None for volume in pod.spec.volumes)
