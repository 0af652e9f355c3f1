"""Work of jobs whose users do not declare it: predicted from completed jobs of the template, otherwise by classes.

Source: ours [I]. Doubling of what is overrun is the multi-level feedback of Nuyens and Wierman, The
foreground-background queue, Perf. Eval. 65(3), 2008, with the given size as the first level.
"""

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from math import log2
from statistics import median

KEPT = 20
"""Number of completed jobs of a template whose sizes are kept."""
TEMPLATES = 1000
"""Number of templates whose sizes are kept: those that completed a job most recently."""

OVERRUN = 1.05
"""Multiple of a prediction from which it counts as overrun, because no prediction is exact to the second."""


@dataclass(slots=True)
class Sizes:
    """Sizes of completed jobs, by template."""

    _known: OrderedDict[str, deque[float]] = field(default_factory=OrderedDict)

    def add(self, template: str, size: float) -> None:
        """Record the size of a completed job of the template: GPU-seconds, or GPU-seconds a mini-batch."""
        if not template or size <= 0:
            return
        self._known.setdefault(template, deque(maxlen=KEPT)).append(size)
        self._known.move_to_end(template)
        if len(self._known) > TEMPLATES:
            self._known.popitem(last=False)

    def predict(self, template: str) -> float | None:
        """Return the median size of the template's last jobs; None if there are none."""
        known = self._known.get(template)
        return median(known) if known else None


def believed_total(predicted: float, attained: float) -> float:
    """Return the estimated total size of a job: the given size, doubled each time the job has overrun it.

    Args:
        predicted: Size that was predicted, declared or assumed; positive.
        attained: Work done so far, in the same unit.
    """
    if attained < predicted * OVERRUN:
        return predicted
    return predicted * 2.0 ** (1 + int(log2(attained / (predicted * OVERRUN))))
