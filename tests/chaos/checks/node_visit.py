"""Check that pods are not sent again and again to a node that cannot run them. Pure, over the history of pods.

The only node of a site is not excluded for the pods of one namespace. Each job avoids it for itself, so that the limit
is one for each member of a job: a gang comes with all its pods, and comes again with all of them.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tranche.kube.api.names import LABEL_ATTEMPT
from tranche_testcluster import Change


@dataclass(frozen=True, slots=True)
class Visits:
    """Most pods, of all jobs or of each member of a job, that are bound to a node within a part of the history."""

    node: str
    most: int
    first: int
    last: int
    """Revisions."""
    of_each_member: bool = False


def check_visits(history: Sequence[Change], limits: Sequence[Visits]) -> Iterator[str]:
    """Yield nodes to which more pods were bound than a fault allows."""
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
