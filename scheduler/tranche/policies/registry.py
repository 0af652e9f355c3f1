"""All policies by name."""

from collections.abc import Mapping
from types import MappingProxyType

from tranche.policies.chunk_faithful import ChunkFaithful
from tranche.policies.fifo import Fifo
from tranche.policies.interfaces import Policy

POLICIES: Mapping[str, Policy] = MappingProxyType({policy.name: policy for policy in (ChunkFaithful(), Fifo())})


def get_policy(name: str) -> Policy:
    """The policy of that name.

    Raises:
        ValueError: naming the policies that exist.
    """
    try:
        return POLICIES[name]
    except KeyError:
        raise ValueError(f"unknown policy {name!r}; choose one of: {', '.join(sorted(POLICIES))}") from None
