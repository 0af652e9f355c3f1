"""Panels and dashboards as values: `grafana` serializes them, tests evaluate them, and `pictures` draws them."""

import re
from dataclasses import dataclass
from typing import Literal

Look = Literal["timeseries", "stat", "heatmap"]
Unit = Literal["s", "short", "percentunit", "bytes", "Bps", "cps", "reqps", "wps"]
"""Unit of Grafana; cps, reqps and wps are events, requests and writes per second."""
_NAME = re.compile(r"\b(?:tranche|process)_[a-z0-9_]+")
_VARIABLES = re.compile(r"\$__(?:rate_interval|range)")


@dataclass(frozen=True, slots=True)
class Query:
    """A PromQL expression and the legend of its series."""

    expression: str
    legend: str = ""
    """Legend; it may contain labels, such as ``{{site}}``."""

    @property
    def names(self) -> frozenset[str]:
        """Names of the series that the expression reads."""
        return frozenset(_NAME.findall(self.expression))

    def over(self, span: str) -> str:
        """Return the expression with a duration, such as ``5m``, in place of Grafana's variables."""
        return _VARIABLES.sub(span, self.expression)


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel."""

    title: str
    text: str
    """Description: what the panel shows and how to interpret it."""
    queries: tuple[Query, ...]
    unit: Unit = "short"
    look: Look = "timeseries"
    stacked: bool = False


@dataclass(frozen=True, slots=True)
class Dashboard:
    """A dashboard: panels, two in a row."""

    name: str
    """Name of its file and part of its URL."""
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
    """Create a panel from (expression, legend) pairs."""
    return Panel(title, text, tuple(Query(*query) for query in queries), unit, look, stacked)


def quantile(share: float, metric: str, by: str = "", span: str = "$__rate_interval") -> str:
    """Return the expression for a quantile of a histogram, over all processes."""
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({share:g}, sum by ({labels}) (rate({metric}_bucket[{span}])))"


def mean(metric: str, by: str = "", span: str = "$__rate_interval") -> str:
    """Return the expression for the mean of a histogram, over all processes."""
    labels = f" by ({by})" if by else ""
    return f"sum{labels} (rate({metric}_sum[{span}])) / sum{labels} (rate({metric}_count[{span}]))"


def per_second(metric: str, by: str = "") -> str:
    """Return the expression for the rate of a counter, over all processes."""
    return f"sum by ({by}) (rate({metric}[$__rate_interval]))" if by else f"sum (rate({metric}[$__rate_interval]))"
