"""Check that the number of pods on a node that cannot run them is limited. Pure, over the history of pods.

The only node of a site is not excluded for the pods of one namespace. Each job excludes it for itself, so the limit
applies to each member of a job: all pods of a gang are bound there, and after a failure all of them again.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tranche.kube.api.names import LABEL_ATTEMPT
from tranche_testcluster import Change


@dataclass(frozen=True, slots=True)
class Visits:
    """Largest number of pods bound to a node between two revisions: of all jobs, or of each member of a job."""

    node: str
    most: int
    first: int
    last: int
    """Last revision to which the limit applies."""
    of_each_member: bool = False


def check_visits(history: Sequence[Change], limits: Sequence[Visits]) -> Iterator[str]:
    """Yield nodes to which more pods were bound than their limit."""
    bindings = [(change.revision, change.after) for change in history if _is_binding(change) and change.after]
    for limit in limits:
        members = Counter(
            pod["metadata"]["name"].removesuffix(f"-{pod['metadata']['labels'][LABEL_ATTEMPT]}")
            for revision, pod in bindings
            if pod["spec"]["nodeName"] == limit.node and limit.first <= revision <= limit.last
        )
        for whose, count in members.items() if limit.of_each_member else [("", members.total())]:
            if count > limit.most:
                pods = f"{count} pods{whose and f' of {whose}'}"
                yield f"{pods}, at most {limit.most}, are bound to {limit.node}, which cannot run them"


def _is_binding(change: Change) -> bool:
    before, after = change.before or {}, change.after
    if change.resource != "pods" or after is None or LABEL_ATTEMPT not in after["metadata"].get("labels", {}):
        return False
    return bool(after["spec"].get("nodeName")) and not before.get("spec", {}).get("nodeName")
