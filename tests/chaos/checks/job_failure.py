"""Check that each counted failure of a job is a failure of one of its own containers.

Pure, over the history of jobs and pods.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from chaos.checks.ledger import own_status
from tranche.kube.api.names import LABEL_ATTEMPT, LABEL_ROLE, ROLE_STAGING
from tranche_testcluster import Change

START_ERRORS = frozenset(
    ("ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError")
)
"""Reasons why a container waits permanently because of the template of its job."""
NODE_ENDS = frozenset(("Unknown", "ContainerStatusUnknown"))
"""Reasons of containers that no longer exist after a reboot of their node."""


def check_failures(history: Sequence[Change]) -> Iterator[str]:
    """Yield jobs with more failures than pods whose own container failed."""
    failed: defaultdict[str, set[str]] = defaultdict(set)
    counted: dict[str, int] = {}
    for change in history:
        after = change.after
        if after is None:
            continue
        if change.resource == "pods":
            labels = after["metadata"].get("labels", {})
            if LABEL_ATTEMPT in labels and labels.get(LABEL_ROLE) != ROLE_STAGING and _failed(after):
                failed[after["metadata"]["ownerReferences"][0]["uid"]].add(after["metadata"]["uid"])
        elif change.resource == "tranche.dev/trainingjobs":
            uid, failures = after["metadata"]["uid"], own_status(after).get("progress", {}).get("failures", 0)
            if failures > max(counted.get(uid, 0), len(failed[uid])):
                where = f"revision {change.revision}: {change.key}"
                yield f"{where} has {failures} failures, and {len(failed[uid])} of its pods failed by themselves"
            counted[uid] = failures


def _failed(pod: Mapping[str, Any]) -> bool:
    """Return whether a container of the pod failed or cannot start, although no client has stopped the pod."""
    status = pod["status"]
    if "deletionTimestamp" in pod["metadata"]:
        return False
    if any(one["type"] == "DisruptionTarget" and one["status"] == "True" for one in status.get("conditions", ())):
        return False
    states = [one.get("state", {}) for one in status.get("containerStatuses", ())]
    ends = [state["terminated"] for state in states if "terminated" in state]
    if any(state.get("waiting", {}).get("reason") in START_ERRORS for state in states):
        return True
    return any(end["exitCode"] and end.get("startedAt") and end.get("reason") not in NODE_ENDS for end in ends)
