"""Metrics of every process of tranche, and a registry with the definition of each metric."""

import asyncio
import itertools
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tranche import __version__

Kind = Literal["counter", "gauge", "histogram"]
Samples = Iterable[tuple[tuple[str, ...], float]]
"""Label values and number of each series."""
Rows = Iterable[tuple[tuple[str, ...], tuple[float, ...]]]
"""Label values and numbers of series of several metrics with the same labels."""
_FAMILIES = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily}
MAX_SAMPLES = 250
"""Maximum number of samples rendered without yielding: about a millisecond."""
API_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0)


@dataclass(frozen=True, slots=True)
class Definition:
    """Definition of a metric, for the reference, dashboards and rules."""

    name: str
    """Name in Prometheus; for a histogram, without ``_bucket``, ``_sum`` and ``_count``."""
    kind: Kind
    labels: tuple[str, ...]
    text: str

    @property
    def series(self) -> tuple[str, ...]:
        """Names of its series in Prometheus."""
        if self.kind == "histogram":
            return tuple(f"{self.name}_{part}" for part in ("bucket", "sum", "count"))
        return (self.name,)


class ProcessMetrics:
    """Registry of one process, with the metrics of all processes: build, API requests, memory and CPU time.

    Label values are bounded (namespaces, sites, reasons) and never contain a job name.
    """

    def __init__(self, process: str) -> None:
        """Define the metrics that all processes have.

        Args:
            process: Name of this process: extender, planner, api or operator.
        """
        self.registry = CollectorRegistry()
        self.definitions: list[Definition] = []
        build = self.gauge("tranche_build_info", "Always 1.", ("version", "python", "process"))
        build.labels(__version__, platform.python_version(), process).set(1)
        self._api_requests = self.counter(
            "tranche_api_requests_total",
            "Requests to the API server, by HTTP status of the response (0: none); a watch counts when it opens.",
            ("method", "code"),
        )
        self._api_seconds = self.histogram(
            "tranche_api_request_seconds", "Time until the response of the API server began.", ("method",), API_BUCKETS
        )
        ProcessCollector(registry=self.registry)

    def render(self) -> bytes:
        """Render the metrics in the Prometheus text format."""
        return b"".join(self.portions())

    def portions(self) -> Iterator[bytes]:
        """Render the text format in portions of at most `MAX_SAMPLES` series.

        An empty portion follows each computation.
        """
        for metric in self.registry.collect():
            yield b""
            # The ..._created samples of prometheus_client would add two unused series to each histogram.
            samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            for start in range(0, max(1, len(samples)), MAX_SAMPLES):
                part = _Part(metric.name, metric.documentation, metric.type)
                part.samples = samples[start : start + MAX_SAMPLES]
                text = generate_latest(part)
                yield text if not start else text.split(b"\n", 2)[2]  # name and type are in the first part

    async def read(self) -> bytes:
        """Render the metrics in the Prometheus text format, yielding to the event loop between portions."""
        parts: list[bytes] = []
        for part in self.portions():
            parts.append(part)
            await asyncio.sleep(0)
        return b"".join(parts)

    def observe_api_request(self, method: str, code: int, seconds: float) -> None:
        """Record a request to the API server: HTTP status (0: no response) and seconds until the response."""
        self._api_requests.labels(method, str(code)).inc()
        self._api_seconds.labels(method).observe(seconds)

    # ---- definitions

    def counter(self, name: str, text: str, labels: Sequence[str] = (), *values: Sequence[str]) -> Counter:
        """Define a counter; with `values`, all series exist from the start, because a rate misses the first increment.

        Args:
            name: Name that ends in ``_total``.
            text: Help text.
            labels: Label names.
            values: Known values of each label.
        """
        counter = Counter(name.removesuffix("_total"), text, labels, registry=self.registry)
        self._define("counter", name, text, labels)
        for label_values in itertools.product(*values) if values else ():
            counter.labels(*label_values)
        return counter

    def gauge(self, name: str, text: str, labels: Sequence[str] = ()) -> Gauge:
        """Define a gauge."""
        gauge = Gauge(name, text, labels, registry=self.registry)
        self._define("gauge", name, text, labels)
        return gauge

    def histogram(
        self, name: str, text: str, labels: Sequence[str], buckets: Sequence[float], *values: Sequence[str]
    ) -> Histogram:
        """Define a histogram of seconds; `values` as for `counter`."""
        histogram = Histogram(name, text, labels, buckets=buckets, registry=self.registry)
        self._define("histogram", name, text, labels)
        for label_values in itertools.product(*values) if values else ():
            histogram.labels(*label_values)
        return histogram

    def computed(self, kind: Kind, name: str, text: str, labels: Sequence[str], samples: Callable[[], Samples]) -> None:
        """Define a counter or gauge that is computed when the metrics are read."""
        self.computed_together(kind, {name: text}, labels, lambda: (((v, (number,)) for v, number in samples())))

    def computed_together(
        self, kind: Kind, texts: Mapping[str, str], labels: Sequence[str], rows: Callable[[], Rows]
    ) -> None:
        """Define several metrics with the same labels that are computed together.

        `texts` has the help texts by name; every row has one number per metric.
        """
        for name, text in texts.items():
            self._define(kind, name, text, labels)
        self.registry.register(_Computed(self.definitions[-len(texts) :], rows))

    def _define(self, kind: Kind, name: str, text: str, labels: Sequence[str]) -> None:
        self.definitions.append(Definition(name, kind, tuple(labels), text))


class _Part(Metric):
    """A registry with only some series of one metric."""

    def collect(self) -> Iterator[Metric]:
        yield self


class _Computed(Collector):
    def __init__(self, definitions: Sequence[Definition], rows: Callable[[], Rows]) -> None:
        self._definitions = definitions
        self._rows = rows

    def collect(self) -> Iterator[Metric]:
        families = [_FAMILIES[d.kind](d.name, d.text, labels=d.labels) for d in self._definitions]
        for values, numbers in self._rows():
            for family, number in zip(families, numbers, strict=True):
                family.add_metric(values, number)
        return iter(families)
