"""What tenants hold, and what completed jobs needed: the memory that fairness and prediction draw on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tranche.model import Resources

Derived = TypeVar("Derived")


@dataclass(slots=True)
class Shares:
    """Resources that each tenant's open windows hold."""

    capacity: Resources = Resources()
    """Of all nodes together."""
    held: dict[str, Resources] = field(default_factory=dict)

    def change(self, tenant: str, more: Resources) -> None:
        """Count more (or, if negative, less) for a tenant."""
        self.held[tenant] = self.held.get(tenant, Resources()) + more

    def dominant(self, tenant: str) -> float:
        """The tenant's largest share of any resource (GPUs, CPU, memory), 0 … 1."""
        held = self.held.get(tenant)
        if held is None:
            return 0.0
        whole = self.capacity
        pairs = ((held.gpus, whole.gpus), (held.cpu, whole.cpu), (held.memory, whole.memory))
        return max((part / total for part, total in pairs if total), default=0.0)


@dataclass(slots=True)
class History:
    """Service of completed jobs in GPU-seconds, in order of completion."""

    services: list[float] = field(default_factory=list)
    _derived: dict[str, tuple[int, Any]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.services)

    def add(self, gpu_seconds: float) -> None:
        """A job has completed."""
        self.services.append(gpu_seconds)

    def derive(self, name: str, count: int, function: Callable[[Sequence[float]], Derived]) -> Derived:
        """What a function says of the first `count` services, sorted; computed once while name and count stay."""
        known = self._derived.get(name)
        if known is None or known[0] != count:
            known = self._derived[name] = (count, function(sorted(self.services[:count])))
        found: Derived = known[1]
        return found
