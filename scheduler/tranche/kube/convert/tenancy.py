"""Limits of namespaces from a mounted ConfigMap, which is also the parameter of the ValidatingAdmissionPolicy.

A CEL expression of a policy cannot parse YAML, so the ConfigMap has one key for each limit: ``maxWeight``,
``highestPriorityClass``, ``allowNever``, ``allowAtChunkEnd``, ``maxRestartSeconds`` and ``maxGraceSeconds``, and the
same with the suffix ``.NAMESPACE``. Mounted, each key is a file. The policy alone enforces ``maxGraceSeconds``: a grace
period belongs to pods, not to the plan.
"""

import logging
from collections.abc import Iterable, Mapping
from math import isfinite
from pathlib import Path
from types import MappingProxyType

from tranche.model.tenancy import DEFAULT_CLASS, LARGEST_WEIGHT, PRIORITY_CLASSES, ClaimLimits, Tenancy

logger = logging.getLogger(__name__)

MAX_WEIGHT, HIGHEST_CLASS = "maxWeight", "highestPriorityClass"
ALLOW_NEVER, ALLOW_AT_CHUNK_END = "allowNever", "allowAtChunkEnd"
MAX_RESTART, MAX_GRACE = "maxRestartSeconds", "maxGraceSeconds"
UNREADABLE = MappingProxyType(
    {
        MAX_WEIGHT: "1",
        HIGHEST_CLASS: DEFAULT_CLASS,
        ALLOW_NEVER: "false",
        ALLOW_AT_CHUNK_END: "false",
        MAX_RESTART: "600",
    }
)
"""Limits in place of unreadable ones when a planner starts: no claim is freed, and no job without claims loses rank."""


def to_tenancy(data: Mapping[str, str]) -> Tenancy:
    """Convert the data of the ConfigMap.

    Raises:
        ValueError: a key or a value is unknown; the message names the key.
    """
    for key, value in data.items():
        limit = key.partition(".")[0]
        if limit not in (MAX_WEIGHT, HIGHEST_CLASS, ALLOW_NEVER, ALLOW_AT_CHUNK_END, MAX_RESTART, MAX_GRACE):
            raise ValueError(f"{key}: unknown limit")
        if limit in (MAX_RESTART, MAX_GRACE) and not value.isdecimal():
            raise ValueError(f"{key}: {value!r} is not a whole number of seconds")
    named = {key.partition(".")[2] for key in data} - {""}
    defaults = _limits(data, "", ClaimLimits())
    return Tenancy(defaults, {name: _limits(data, f".{name}", defaults) for name in sorted(named)})


def readable(data: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return the data with `UNREADABLE` in place of what cannot be read, and the messages about that."""
    found, problems = dict(data), []
    for key, value in data.items():
        try:
            to_tenancy({key: value})
        except ValueError as error:
            problems.append(str(error))
            limit, dot, namespace = key.partition(".")
            del found[key]
            if limit in UNREADABLE:
                found[limit + dot + namespace] = UNREADABLE[limit]
    return found, problems


def _limits(data: Mapping[str, str], suffix: str, defaults: ClaimLimits) -> ClaimLimits:
    return ClaimLimits(
        _weight(data, MAX_WEIGHT + suffix, defaults.max_weight),
        _one_of(data, HIGHEST_CLASS + suffix, PRIORITY_CLASSES, defaults.highest_class),
        _allowed(data, ALLOW_NEVER + suffix, defaults.allow_never),
        float(data.get(MAX_RESTART + suffix, defaults.max_restart_seconds)),
        _allowed(data, ALLOW_AT_CHUNK_END + suffix, defaults.allow_at_chunk_end),
    )


def _allowed(data: Mapping[str, str], key: str, default: bool) -> bool:
    return _one_of(data, key, ("true", "false"), str(default).lower()) == "true"


def _weight(data: Mapping[str, str], key: str, default: float) -> float:
    if key not in data:
        return default
    try:
        weight = float(data[key])
    except ValueError:
        weight = 0.0
    if not (isfinite(weight) and 0 < weight <= LARGEST_WEIGHT):
        raise ValueError(f"{key}: {data[key]!r} is not a number above 0 and at most {LARGEST_WEIGHT:g}")
    return weight


def _one_of(data: Mapping[str, str], key: str, known: Iterable[str], default: str) -> str:
    value = data.get(key, default).strip()
    if value not in known:
        raise ValueError(f"{key}: {value!r} is not one of {', '.join(known)}")
    return value


class TenancyDirectory:
    """The mounted ConfigMap, read again when it has changed."""

    def __init__(self, directory: Path | None) -> None:
        """Read the limits. What cannot be read is logged and counts as `UNREADABLE`: no planner would start otherwise.

        Args:
            directory: Mount path of the ConfigMap; without one, nothing is limited.

        Raises:
            OSError: the directory cannot be read.
        """
        self._directory = directory
        self._data: dict[str, str] = self._read()
        data, problems = readable(self._data)
        for problem in problems:
            logger.error("%s: %s: jobs may claim nothing beyond the defaults there", directory, problem)
        self.current = to_tenancy(data)
        """The last limits that could be read."""

    def reload(self) -> bool:
        """Read the limits again; return whether they changed. What cannot be read is logged, and the limits stay."""
        try:
            data = self._read()
            if data == self._data:
                return False
            self._data = data
            found = to_tenancy(data)
        except (OSError, ValueError) as error:
            logger.error("%s: %s: the previous limits of namespaces stay in force", self._directory, error)
            return False
        changed, self.current = found != self.current, found
        return changed

    def _read(self) -> dict[str, str]:
        """Read all files. The kubelet's own entries (``..data``) begin with two dots."""
        if self._directory is None:
            return {}
        files = (path for path in self._directory.iterdir() if not path.name.startswith("..") and path.is_file())
        return {path.name: path.read_text(encoding="utf-8").strip() for path in files}
