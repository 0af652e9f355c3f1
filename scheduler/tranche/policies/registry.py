"""All policies by name, with their options."""

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from functools import cache
from importlib import import_module
from math import isnan
from typing import Any

from tranche.policies.base import Policy

_CLASSES = {
    "chunk": "queue.chunk.Chunk",
    "chunk-faithful": "binding.chunk_faithful.ChunkFaithful",
    "consolidate": "locality.consolidate.Consolidate",
    "dally-like": "locality.dally.Dally",
    "dorm": "allocation.dorm.Dorm",
    "drf": "queue.drf.Drf",
    "fifo": "queue.fifo.Fifo",
    "fifo-skip": "queue.fifo_skip.FifoSkip",
    "first-fit": "queue.first_fit.FirstFit",
    "gittins": "queue.gittins.Gittins",
    "las": "queue.las.Las",
    "least-loaded": "binding.least_loaded.LeastLoaded",
    "lwf": "binding.lwf.Lwf",
    "no-wait": "locality.no_wait.NoWait",
    "oasis": "slot_table.oasis.Oasis",
    "optimus": "allocation.optimus.Optimus",
    "pd-ors-like": "slot_table.pd_ors.PdOrs",
    "random": "binding.random_dispatch.RandomDispatch",
    "round-robin": "binding.round_robin.RoundRobin",
    "rrh": "allocation.rrh.Rrh",
    "selector": "queue.selector.Selector",
    "sjf": "queue.sjf.Sjf",
    "srpt-pool": "queue.srpt_pool.SrptPool",
    "srsf": "queue.srsf.Srsf",
    "srtf": "queue.srtf.Srtf",
    "themis": "queue.themis.Themis",
    "tiresias": "queue.tiresias.Tiresias",
}
"""Module below `tranche.policies` and class of each policy, by name."""


class _Policies(Mapping[str, Policy]):
    """All policies by name; the module of a policy is imported when the policy is first used."""

    def __getitem__(self, name: str) -> Policy:
        return _policy(name)

    def __contains__(self, name: object) -> bool:
        return name in _CLASSES

    def __iter__(self) -> Iterator[str]:
        return iter(_CLASSES)

    def __len__(self) -> int:
        return len(_CLASSES)


@cache
def _policy(name: str) -> Policy:
    """Return the policy of that name with its default options; KeyError if there is none."""
    module, _, class_name = _CLASSES[name].rpartition(".")
    policy: Policy = getattr(import_module(f"tranche.policies.{module}"), class_name)()
    return policy


POLICIES: Mapping[str, Policy] = _Policies()


@cache
def live_policies() -> tuple[str, ...]:
    """Return the names of the policies that a restarted planner can restore from spec and status."""
    return tuple(name for name in sorted(POLICIES) if POLICIES[name].traits.recoverable)


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
    defaults: dict[str, Any] = {field.name: getattr(policy, field.name) for field in fields(policy)}  # type: ignore[arg-type]
    changed: dict[str, Any] = {}
    for option in options.split(":"):
        key, equals, value = option.partition("=")
        if key not in defaults:
            names = ", ".join(defaults) or "no options"
            raise ValueError(f"policy {name} has no option {option!r}; it has {names}, written as {name}:option=value")
        if not equals:
            raise ValueError(f"option {key} of policy {name} has no value; write {name}:{key}=value")
        if key in changed:
            raise ValueError(f"policy {name} has the option {key} twice")
        changed[key] = _converted(name, key, value, defaults[key])
    return replace(policy, **changed)  # type: ignore[type-var]


def get_live_policy(text: str) -> Policy:
    """Return the policy of that name, if a restarted planner can restore it from spec and status.

    Raises:
        ValueError: naming the policies, options or values that exist.
    """
    name = text.partition(":")[0]
    if name not in POLICIES or not POLICIES[name].traits.recoverable:
        problem = f"policy {name} is for the simulator only" if name in POLICIES else f"unknown policy {name!r}"
        raise ValueError(f"{problem}; choose one of: {', '.join(live_policies())}")
    return get_policy(text)


def _converted(name: str, key: str, value: str, example: object) -> object:
    """Return the value in the type of the default; several numbers are separated by slashes."""
    try:
        if isinstance(example, tuple):
            return tuple(_number(part) for part in value.split("/"))
        return _number(value) if isinstance(example, float) else value
    except ValueError:
        wanted = "numbers separated by /" if isinstance(example, tuple) else "a number"
        raise ValueError(f"option {key} of policy {name} needs {wanted}, not {value!r}") from None


def _number(text: str) -> float:
    """Return the number; ValueError if it is none, as NaN is not."""
    number = float(text)
    if isnan(number):
        raise ValueError(text)
    return number
