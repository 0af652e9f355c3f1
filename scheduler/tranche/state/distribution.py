"""Last worker distribution of a policy that allocates the workers of all jobs together, and a mark to recognize it by.

A planner that takes over restores the grants of all jobs from their statuses. If nothing has changed since its
predecessor distributed workers, it must not distribute them again: the result depends on the time. The mark says so: it
is a digest of everything that the last distribution depended on, and of its result.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from hashlib import blake2b
from typing import NamedTuple

from tranche.model import Site
from tranche.state.job import JobState
from tranche.state.node import NodeState


class Inputs(NamedTuple):
    """Inputs of a distribution; as long as they are those of the last one, there is no other."""

    epoch: int
    """Epoch of nodes and sites, trials of nodes left out, because jobs begin and give them up with their windows."""
    period: int
    """Number of the period of `QueuePolicy.allocation_seconds`; 0 without periods."""
    sharing: tuple[tuple[str, int, int, int], ...]
    """Jobs that share the workers: key, generation, workers that the job can use, number of sites with its data."""


@dataclass(frozen=True, slots=True)
class Inherited:
    """Last distribution of an earlier planner, as far as no status of a job holds it."""

    mark: str
    """Mark of the distribution (`mark_of`)."""
    period: int
    returned: int
    """As `Distribution.returned`."""
    holders: int
    """Number of jobs that held cells."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """The last worker distribution; a value, so that copies of the state may share it."""

    inputs: Inputs | None = None
    """None before the first one."""
    policy: str = ""
    """The policy with its options, as text."""
    returned: int = 0
    """Number of times that jobs have given back their cells, under a policy with a slot table."""
    holders: frozenset[str] = field(default_factory=frozenset)
    """Jobs that held cells after it."""
    is_partial: bool = False
    """Whether the policy has not considered all jobs yet, so that there is another distribution at once."""
    inherited: Inherited | None = None
    """Distribution of an earlier planner, before the first one of this planner."""


def mark_of(
    policy: str,
    inputs: Inputs,
    nodes: Iterable[NodeState],
    sites: Iterable[Site],
    jobs: Iterable[JobState],
) -> str:
    """Return a digest of the inputs of a distribution and of its result.

    Args:
        policy: The policy with its options, as text.
        inputs: Inputs, whose epoch does not count: it is a counter of one process.
        nodes: All nodes.
        sites: All sites.
        jobs: All jobs, with the result.
    """
    results = sorted(
        (state.job.key, state.granted or 0, state.place, state.preferred, state.slot_plan)
        for state in jobs
        if state.active
    )
    basis = (
        policy,
        inputs.period,
        sorted(inputs.sharing),
        sorted((node.node.name, canonical(node.node), bool(node.exclusion_reason)) for node in nodes),
        sorted((site.name, canonical(site)) for site in sites),
        results,
    )
    return blake2b(repr(basis).encode(), digest_size=16).hexdigest()


def canonical(value: object) -> str:
    """Return a text that is equal for equal values, whatever the order of their mappings."""
    if is_dataclass(value):
        return repr([canonical(getattr(value, part.name)) for part in fields(value)])
    if isinstance(value, Mapping):
        return repr(sorted((key, canonical(part)) for key, part in value.items()))
    if isinstance(value, Enum):
        return repr(value.value)
    if isinstance(value, frozenset | set):
        return repr(sorted(map(canonical, value)))
    if isinstance(value, tuple | list):
        return repr([canonical(part) for part in value])
    return repr(value)
