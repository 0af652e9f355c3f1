"""Panels and dashboards as values; `grafana` writes them, tests evaluate them, `pictures` draws them."""

import re
from dataclasses import dataclass
from typing import Literal

Look = Literal["timeseries", "stat", "heatmap"]
Unit = Literal["s", "short", "percentunit", "bytes", "Bps", "ops", "none"]
_NAME = re.compile(r"\b(?:tranche|process)_[a-z0-9_]+")
_VARIABLES = re.compile(r"\$__(?:rate_interval|range)")


@dataclass(frozen=True, slots=True)
class Query:
    """One expression and how its series are called."""

    expression: str
    legend: str = ""
    """May name labels: ``{{site}}``."""

    @property
    def names(self) -> frozenset[str]:
        """Series that it reads."""
        return frozenset(_NAME.findall(self.expression))

    def over(self, span: str) -> str:
        """The expression with one duration, such as ``5m``, for all of Grafana's variables."""
        return _VARIABLES.sub(span, self.expression)


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture."""

    title: str
    text: str
    """What is seen and what to think of it."""
    queries: tuple[Query, ...]
    unit: Unit = "short"
    look: Look = "timeseries"
    stacked: bool = False


@dataclass(frozen=True, slots=True)
class Dashboard:
    """A page of panels, two in a row."""

    name: str
    """Of its file, and of its address."""
    title: str
    text: str
    panels: tuple[Panel, ...]


def panel(
    title: str,
    text: str,
    *queries: tuple[str, str],
    unit: Unit = "short",
    look: Look = "timeseries",
    stacked: bool = False,
) -> Panel:
    """A panel of (expression, legend) pairs."""
    return Panel(title, text, tuple(Query(*query) for query in queries), unit, look, stacked)


def quantile(share: float, metric: str, by: str = "", span: str = "$__rate_interval") -> str:
    """Of a histogram, over all processes."""
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({share:g}, sum by ({labels}) (rate({metric}_bucket[{span}])))"


def mean(metric: str, by: str = "", span: str = "$__rate_interval") -> str:
    """Of a histogram, over all processes."""
    labels = f" by ({by})" if by else ""
    return f"sum{labels} (rate({metric}_sum[{span}])) / sum{labels} (rate({metric}_count[{span}]))"


def per_second(metric: str, by: str = "") -> str:
    """Of a counter, over all processes."""
    return f"sum by ({by}) (rate({metric}[$__rate_interval]))" if by else f"sum (rate({metric}[$__rate_interval]))"
