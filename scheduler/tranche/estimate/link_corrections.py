"""Measured over declared times of uploads, by link and namespace.

The size of the data is what the job declares, and a copy takes as long as its pod, so a measurement may be wrong by any
factor. It counts for its own namespace. For others, several namespaces have to agree.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import log

from tranche.estimate.namespace_measurements import deciding, keep

LEARNING_RATE = 0.3
"""Weight of the newest measurement."""
MAX_LOG_CORRECTION = log(1000.0)
"""Largest absolute logarithm of a correction of a link's declared time: without a limit, one jump of the clock could
make a link unusable permanently."""
Ends = tuple[str, str]
"""Source site and destination site."""


@dataclass(slots=True)
class LinkCorrections:
    """Logarithms of measured over declared time."""

    common: dict[Ends, float] = field(default_factory=dict)
    """For namespaces without measurements of their own."""
    _own: dict[Ends, dict[str, float]] = field(default_factory=dict)
    """By link and namespace."""
    _recalled: dict[Ends, float] = field(default_factory=dict)
    _jobs: Counter[str] = field(default_factory=Counter)
    """Number of jobs by namespace."""

    def of(self, ends: Ends, namespace: str) -> float:
        """Return the correction for a namespace; 0 if nothing is known."""
        own = self._own.get(ends)
        correction = own.get(namespace) if own else None
        return self.common.get(ends, 0.0) if correction is None else correction

    def items(self) -> Iterator[tuple[Ends, str, float]]:
        """Yield the corrections for all namespaces, with an empty name, and those of single ones that differ."""
        for ends, correction in self.common.items():
            yield ends, "", correction
        for ends, own in self._own.items():
            for namespace, correction in own.items():
                if correction != self.common.get(ends):
                    yield ends, namespace, correction

    def expect_job(self, namespace: str) -> None:
        """Count one more job of a namespace: the measurements of one namespace do not decide for two."""
        self._jobs[namespace] += 1
        if self._jobs[namespace] == 1:
            self._settle_all()

    def forget_job(self, namespace: str) -> None:
        """Count one job less of a namespace."""
        self._jobs[namespace] -= 1
        if not self._jobs[namespace]:
            del self._jobs[namespace]
            self._settle_all()

    def add(self, ends: Ends, namespace: str, logarithm: float) -> None:
        """Count a measurement of a namespace."""
        own = self._own.setdefault(ends, {})
        before = own.get(namespace, self.common.get(ends))
        measured = max(-MAX_LOG_CORRECTION, min(MAX_LOG_CORRECTION, logarithm))
        keep(own, namespace, measured if before is None else before + LEARNING_RATE * (measured - before))
        self._settle(ends)

    def recall(self, ends: Ends, namespace: str, correction: float) -> None:
        """Begin with what an earlier planner has learned; an empty name stands for all namespaces."""
        if namespace:
            self._own.setdefault(ends, {})[namespace] = correction
        else:
            self.common[ends] = self._recalled[ends] = correction

    def forget(self, ends: Ends) -> None:
        """Forget a link whose declaration has changed."""
        for known in (self.common, self._own, self._recalled):
            known.pop(ends, None)

    def links(self) -> set[Ends]:
        """Return the links with measurements."""
        return {*self.common, *self._own}

    def _settle_all(self) -> None:
        for ends in self._own:
            self._settle(ends)

    def _settle(self, ends: Ends) -> None:
        """Compute the common correction: the median over the namespaces, and of two middle ones that nearer to 0."""
        if ranked := sorted(deciding(self._own[ends], self._jobs)):
            middle = len(ranked) // 2
            self.common[ends] = min(ranked[(len(ranked) - 1) // 2 : middle + 1], key=abs)
        elif ends in self._recalled:
            self.common[ends] = self._recalled[ends]
        else:
            self.common.pop(ends, None)
