"""No delay: a gang takes the narrowest topology level that is free now.

Source: ours [I], the comparator of `dally-like` with timers of 0; all else is as there.
"""

from dataclasses import dataclass
from typing import ClassVar

from tranche.policies.base import PolicyTraits
from tranche.policies.locality.most_delayed import TRAITS, MostDelayed


@dataclass(frozen=True, slots=True)
class NoWait(MostDelayed):
    """Timers of 0: a gang takes the narrowest level that is free now."""

    name: ClassVar[str] = "no-wait"
    source: ClassVar[str] = "Gangs take the narrowest topology level that is free now [I]: beside dally-like"
    traits: ClassVar[PolicyTraits] = TRAITS
