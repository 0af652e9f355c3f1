"""Did pods go on being sent to a node that cannot run them? Pure, over the history of pods."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tranche.kube.api.names import LABEL_ATTEMPT
from tranche_testcluster import Change


@dataclass(frozen=True, slots=True)
class Visits:
    """Most pods of jobs that are bound to a node within a part of the history."""

    node: str
    most: int
    first: int
    last: int
    """Revisions."""


def check_visits(history: Sequence[Change], limits: Sequence[Visits]) -> Iterator[str]:
    """Yield nodes to which more pods were bound than a fault allows."""
    bound = [(change.revision, (change.after or {})["spec"]["nodeName"]) for change in history if _is_binding(change)]
    for limit in limits:
        count = sum(node == limit.node and limit.first <= revision <= limit.last for revision, node in bound)
        if count > limit.most:
            yield f"{count} pods, at most {limit.most}, are bound to {limit.node}, which cannot run them"


def _is_binding(change: Change) -> bool:
    before, after = change.before or {}, change.after
    if change.resource != "pods" or after is None or LABEL_ATTEMPT not in after["metadata"].get("labels", {}):
        return False
    return bool(after["spec"].get("nodeName")) and not before.get("spec", {}).get("nodeName")
