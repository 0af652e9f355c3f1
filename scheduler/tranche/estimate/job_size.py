"""Work of jobs whose users do not declare it: predicted from completed jobs of the template, otherwise by classes.

Source: ours [I]. Doubling of what is overrun is the multi-level feedback of Nuyens and Wierman, The
foreground-background queue, Perf. Eval. 65(3), 2008, with the given size as the first level.
"""

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from math import log, log2, sqrt
from statistics import fmean, median

MAX_SIZES = 20
"""Number of completed jobs of a template whose sizes are kept."""
MAX_TEMPLATES = 1000
"""Number of templates whose sizes are kept: those that completed a job most recently."""

DECLARED_SIGMA = 1.0
"""Standard deviation of the logarithm of actual over declared size, before anything is learned [I]."""
UNKNOWN_SIGMA = 2.0
"""Standard deviation of the logarithm of a size that is an assumption [I]."""
PRIOR_JOBS = 2.0
"""Number of completed jobs that DECLARED_SIGMA counts for beside those of a template [I]."""

OVERRUN = 1.05
"""Multiple of a prediction from which it counts as overrun, because no prediction is exact to the second."""


@dataclass(slots=True)
class Sizes:
    """Sizes of completed jobs, by template."""

    _by_template: OrderedDict[str, deque[float]] = field(default_factory=OrderedDict)

    def add(self, template: str, size: float) -> None:
        """Record the size of a completed job of the template: GPU-seconds, or GPU-seconds a mini-batch."""
        if not template or size <= 0:
            return
        self._by_template.setdefault(template, deque(maxlen=MAX_SIZES)).append(size)
        self._by_template.move_to_end(template)
        if len(self._by_template) > MAX_TEMPLATES:
            self._by_template.popitem(last=False)

    def predict(self, template: str) -> float | None:
        """Return the median size of the template's last jobs; None if there are none."""
        sizes = self._by_template.get(template)
        return median(sizes) if sizes else None

    def sigma(self, template: str) -> float:
        """Return the standard deviation of the logarithm of the next size; UNKNOWN_SIGMA if there is no completed job.

        Sizes are log-normal with an unknown mean and variance. The variance is shrunk towards DECLARED_SIGMA², as if
        PRIOR_JOBS other jobs had it, and widened by 1 + 1/n for the unknown mean, so that few jobs give a wide one.
        """
        logs = [log(size) for size in self._by_template.get(template, ())]
        if not logs:
            return UNKNOWN_SIGMA
        mean, count = fmean(logs), len(logs)
        squares = PRIOR_JOBS * DECLARED_SIGMA**2 + sum((value - mean) ** 2 for value in logs)
        return sqrt(squares / (PRIOR_JOBS + count - 1.0) * (1.0 + 1.0 / count))


def estimated_total(predicted: float, attained: float) -> float:
    """Return the estimated total size of a job: the given size, doubled each time the job has overrun it.

    Args:
        predicted: Size that was predicted, declared or assumed; positive.
        attained: Work done so far, in the same unit.
    """
    if attained < predicted * OVERRUN:
        return predicted
    return predicted * 2.0 ** (1 + int(log2(attained / (predicted * OVERRUN))))
