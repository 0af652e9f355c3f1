"""Which jobs ask for more GPUs than the whole cluster has; what else keeps a job waiting, the planner says."""

from collections.abc import Iterable, Sequence

from tranche.model import Job, Node, Site


def oversized(jobs: Iterable[Job], nodes: Sequence[Node], sites: Iterable[Site]) -> list[Job]:
    """Jobs that an empty cluster could not hold, by GPUs alone."""
    if any(site.unlimited for site in sites):
        return []
    places: dict[int, int] = {}
    found: list[Job] = []
    for job in jobs:
        if job.gpus < 1:
            continue
        if job.gpus not in places:
            places[job.gpus] = sum(node.allocatable.gpus // job.gpus for node in nodes)
        if places[job.gpus] < job.min_available:
            found.append(job)
    return found
