"""What every process of ours tells Prometheus, and a registry that knows how each metric is defined."""

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
"""Values of labels, and a number, of each series."""
Rows = Iterable[tuple[tuple[str, ...], tuple[float, ...]]]
"""The same for several metrics of the same labels."""
_FAMILIES = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily}
MOST_SAMPLES = 250
"""Written at once: about a millisecond."""
API_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0)


@dataclass(frozen=True, slots=True)
class Definition:
    """A metric as it is looked up: in the reference, in dashboards and rules."""

    name: str
    """As Prometheus stores it; of a histogram without ``_bucket``, ``_sum`` and ``_count``."""
    kind: Kind
    labels: tuple[str, ...]
    text: str

    @property
    def series(self) -> tuple[str, ...]:
        """The names under which its series are stored."""
        if self.kind == "histogram":
            return tuple(f"{self.name}_{part}" for part in ("bucket", "sum", "count"))
        return (self.name,)


class ProcessMetrics:
    """A registry of one process, with what all of our processes have: build, API requests, memory and CPU time.

    Labels are bounded: namespaces, sites, reasons; never a job's name.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.definitions: list[Definition] = []
        build = self.gauge("tranche_build_info", "Always 1.", ("version", "python"))
        build.labels(__version__, platform.python_version()).set(1)
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
        """The text format."""
        return b"".join(self.portions())

    def portions(self) -> Iterator[bytes]:
        """The same, at most `MOST_SAMPLES` series of a metric at a time, and nothing after a metric is looked up."""
        for metric in self.registry.collect():
            yield b""
            # prometheus_client's ..._created, when a series began, is two series more of each histogram for nobody.
            samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            for start in range(0, max(1, len(samples)), MOST_SAMPLES):
                part = _Part(metric.name, metric.documentation, metric.type)
                part.samples = samples[start : start + MOST_SAMPLES]
                text = generate_latest(part)
                yield text if not start else text.split(b"\n", 2)[2]  # its name and type stand in the first

    async def read(self) -> bytes:
        """The text format, made in portions between which the event loop serves others."""
        parts: list[bytes] = []
        for part in self.portions():
            parts.append(part)
            await asyncio.sleep(0)
        return b"".join(parts)

    def observe_api_request(self, method: str, code: int, seconds: float) -> None:
        """The API server answered a request with this status after so many seconds; 0: it did not."""
        self._api_requests.labels(method, str(code)).inc()
        self._api_seconds.labels(method).observe(seconds)

    # ---- definitions

    def counter(self, name: str, text: str, labels: Sequence[str] = (), *values: Sequence[str]) -> Counter:
        """A counter; with `values` of every label, all series are there from the start, since a rate misses the first.

        Args:
            name: Ends in ``_total``.
            text: What is counted.
            labels: Their names.
            values: The values of each label, as far as they are known.
        """
        made = Counter(name.removesuffix("_total"), text, labels, registry=self.registry)
        self._define("counter", name, text, labels)
        for one in itertools.product(*values) if values else ():
            made.labels(*one)
        return made

    def gauge(self, name: str, text: str, labels: Sequence[str] = ()) -> Gauge:
        """A number that is set."""
        made = Gauge(name, text, labels, registry=self.registry)
        self._define("gauge", name, text, labels)
        return made

    def histogram(
        self, name: str, text: str, labels: Sequence[str], buckets: Sequence[float], *values: Sequence[str]
    ) -> Histogram:
        """A histogram of seconds; `values` as for counters."""
        made = Histogram(name, text, labels, buckets=buckets, registry=self.registry)
        self._define("histogram", name, text, labels)
        for one in itertools.product(*values) if values else ():
            made.labels(*one)
        return made

    def computed(self, kind: Kind, name: str, text: str, labels: Sequence[str], samples: Callable[[], Samples]) -> None:
        """A counter or gauge that is computed whenever the metrics are read."""
        self.computed_together(kind, {name: text}, labels, lambda: (((v, (number,)) for v, number in samples())))

    def computed_together(
        self, kind: Kind, texts: Mapping[str, str], labels: Sequence[str], rows: Callable[[], Rows]
    ) -> None:
        """Several of the same labels from one look: `texts` by name, and a number for each in every row."""
        for name, text in texts.items():
            self._define(kind, name, text, labels)
        self.registry.register(_Computed(self.definitions[-len(texts) :], rows))

    def _define(self, kind: Kind, name: str, text: str, labels: Sequence[str]) -> None:
        self.definitions.append(Definition(name, kind, tuple(labels), text))


class _Part(Metric):
    """Some series of a metric, as a registry that has nothing else."""

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
