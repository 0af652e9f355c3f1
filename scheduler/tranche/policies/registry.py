"""All policies by name, with their options."""

from collections.abc import Mapping
from dataclasses import fields, replace
from types import MappingProxyType
from typing import Any

from tranche.policies.allocation.dorm import Dorm
from tranche.policies.allocation.optimus import Optimus
from tranche.policies.allocation.rrh import Rrh
from tranche.policies.base import Policy
from tranche.policies.binding.chunk_faithful import ChunkFaithful
from tranche.policies.binding.least_loaded import LeastLoaded
from tranche.policies.binding.lwf import Lwf
from tranche.policies.binding.random_dispatch import RandomDispatch
from tranche.policies.binding.round_robin import RoundRobin
from tranche.policies.locality.consolidate import Consolidate
from tranche.policies.locality.dally import Dally
from tranche.policies.locality.no_wait import NoWait
from tranche.policies.queue.chunk import Chunk
from tranche.policies.queue.drf import Drf
from tranche.policies.queue.fifo import Fifo
from tranche.policies.queue.fifo_skip import FifoSkip
from tranche.policies.queue.first_fit import FirstFit
from tranche.policies.queue.gittins import Gittins
from tranche.policies.queue.las import Las
from tranche.policies.queue.selector import Selector
from tranche.policies.queue.sjf import Sjf
from tranche.policies.queue.srpt_pool import SrptPool
from tranche.policies.queue.srsf import Srsf
from tranche.policies.queue.srtf import Srtf
from tranche.policies.queue.themis import Themis
from tranche.policies.queue.tiresias import Tiresias
from tranche.policies.slot_table.oasis import Oasis
from tranche.policies.slot_table.pd_ors import PdOrs

_ALL: tuple[Policy, ...] = (
    Chunk(),
    ChunkFaithful(),
    Consolidate(),
    Dally(),
    Dorm(),
    Drf(),
    Fifo(),
    FifoSkip(),
    FirstFit(),
    Gittins(),
    Las(),
    LeastLoaded(),
    Lwf(),
    NoWait(),
    Oasis(),
    Optimus(),
    PdOrs(),
    RandomDispatch(),
    RoundRobin(),
    Rrh(),
    Selector(),
    Sjf(),
    SrptPool(),
    Srsf(),
    Srtf(),
    Themis(),
    Tiresias(),
)
POLICIES: Mapping[str, Policy] = MappingProxyType({policy.name: policy for policy in _ALL})
LIVE_POLICIES = tuple(sorted(name for name, policy in POLICIES.items() if policy.traits.recoverable))
"""Names of the policies that a restarted planner can restore from spec and status."""


def get_policy(text: str) -> Policy:
    """Return the policy of that name, with its options if any: ``tiresias:order=entry:limits=3250/7200``.

    Raises:
        ValueError: naming the policies, options or values that exist.
    """
    name, colon, options = text.partition(":")
    if name not in POLICIES:
        raise ValueError(f"unknown policy {name!r}; choose one of: {', '.join(sorted(POLICIES))}")
    policy = POLICIES[name]
    if not colon:
        return policy
    known: dict[str, Any] = {field.name: getattr(policy, field.name) for field in fields(policy)}  # type: ignore[arg-type]
    changed: dict[str, Any] = {}
    for option in options.split(":"):
        key, equals, value = option.partition("=")
        if key not in known or not equals:
            names = ", ".join(known) or "no options"
            raise ValueError(f"policy {name} has no option {option!r}; it has {names}, written as {name}:option=value")
        changed[key] = _converted(name, key, value, known[key])
    return replace(policy, **changed)  # type: ignore[type-var]


def get_live_policy(text: str) -> Policy:
    """Return the policy of that name, if a restarted planner can restore it from spec and status.

    Raises:
        ValueError: naming the policies, options or values that exist.
    """
    name = text.partition(":")[0]
    if name in POLICIES and name not in LIVE_POLICIES:
        raise ValueError(f"policy {name} is for the simulator only; choose one of: {', '.join(LIVE_POLICIES)}")
    return get_policy(text)


def _converted(name: str, key: str, value: str, example: object) -> object:
    """Return the value in the type of the default; several numbers are separated by slashes."""
    try:
        if isinstance(example, tuple):
            return tuple(float(part) for part in value.split("/"))
        return float(value) if isinstance(example, float) else value
    except ValueError:
        raise ValueError(
            f"option {key} of policy {name} is a number (several: separated by /), not {value!r}"
        ) from None
