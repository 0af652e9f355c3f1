"""How much work jobs need whose users do not say: what the last of a template needed, else classes.

Source: ours [I]. Doubling of what is overrun is the multi-level feedback of Nuyens and Wierman, The
foreground-background queue, Perf. Eval. 65(3), 2008, with what was told as the first level.
"""

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from math import log2
from statistics import median

KEPT = 20
"""Completed jobs of a template that are remembered."""
TEMPLATES = 1000
"""Templates that are remembered: those that completed a job last."""

OVERRUN = 1.05
"""A prediction is overrun when so many times it have been needed: none is right to the second."""


@dataclass(slots=True)
class Sizes:
    """What completed jobs needed, by template."""

    _known: OrderedDict[str, deque[float]] = field(default_factory=OrderedDict)

    def add(self, template: str, size: float) -> None:
        """A job of the template has completed and needed so much: GPU-seconds, or GPU-seconds a mini-batch."""
        if not template or size <= 0:
            return
        self._known.setdefault(template, deque(maxlen=KEPT)).append(size)
        self._known.move_to_end(template)
        if len(self._known) > TEMPLATES:
            self._known.popitem(last=False)

    def predict(self, template: str) -> float | None:
        """Median of the last ones, None if there is none."""
        known = self._known.get(template)
        return median(known) if known else None


def believed_total(told: float, attained: float) -> float:
    """What a job is believed to need in all: what was told, doubled as often as that has been overrun.

    Args:
        told: Predicted, declared or assumed; positive.
        attained: What has gone into it, in the same unit.
    """
    if attained < told * OVERRUN:
        return told
    return told * 2.0 ** (1 + int(log2(attained / (told * OVERRUN))))
