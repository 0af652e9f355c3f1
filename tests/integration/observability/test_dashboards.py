"""With a real Prometheus scraping the real processes, each panel shows what the TrainingJobs and pods of the run say.

What neither jobs nor pods can tell, such as the latency of the extender, is held against what the processes themselves
served before and after the run.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from math import prod
from pathlib import Path
from statistics import mean

import pytest

from support.dashboard_expectations import BYTES, Facts, Values, averages, labels, quantile
from support.dashboard_run import GPUS, Run, run
from support.prometheus_server import SCRAPE_SECONDS, SCRAPED, Labels
from support.state_metrics import series_of
from support.yaml_text import load_yaml
from tranche.metrics.scheduler import COMPLETION_BUCKETS
from tranche_observability.dashboards import DASHBOARDS
from tranche_observability.panels import Panel

CHART = Path(__file__).resolve().parents[3] / "helm/tranche"
SCHEDULER, OPERATOR = "tranche-scheduler", "tranche-operator"
LAG_SECONDS = 3.0
"""Lag between the events that this process and the others have received: three processes share a slow, busy machine."""
ALIKE = 0.97
"""Share of a panel's samples that must agree within a scrape and that lag: a status contains a plan a little later than
the scheduler knows of it, and two changes may be received in either order."""
EXACT = 1e-6

Check = Callable[["Shown"], None]


@pytest.fixture(scope="module")
def ran(programs: dict[str, Path]) -> Iterator[Run]:
    with run(programs["prometheus"]) as made:
        yield made


class Shown:
    """One panel after a run."""

    def __init__(self, panel: Panel, made: Run) -> None:
        self.panel = panel
        self.run = made
        self.facts = Facts(made)

    @property
    def scrape_error(self) -> float:
        """By how much Prometheus extrapolates an increase, at both ends of the time shown, as a share of it."""
        return 2.2 * SCRAPE_SECONDS / (self.run.span - 3)

    def values(self, query: int = 0) -> Values:
        """At the end, with the whole run as the time that is shown."""
        return self.run.prometheus.instant(self.panel.queries[query].over(f"{self.run.span}s"), self.run.ended)

    def assert_values(self, expected: Values, query: int = 0, error: float = EXACT) -> None:
        """Check the values; where none is expected, zero is allowed."""
        found = self.values(query)
        for key in {*found, *expected}:
            assert found.get(key, 0.0) == pytest.approx(expected.get(key, 0.0), rel=error, abs=error), key

    def assert_counts(self, expected: Values, query: int = 0) -> None:
        """Check increases or rates: Prometheus extrapolates them by up to a scrape at both ends."""
        scale = self.run.span if self.panel.unit in ("cps", "reqps", "wps", "Bps") else 1
        error = self.scrape_error
        found = {key: value * scale for key, value in self.values(query).items()}
        for key in {*found, *expected}:
            assert found.get(key, 0.0) == pytest.approx(expected.get(key, 0.0), rel=error, abs=0.01), key

    def assert_course(self, expected: Callable[[float], Values], error: float = EXACT) -> None:
        """At almost every second it is what it was within a scrape before."""
        courses = self.run.prometheus.over(
            self.panel.queries[0].expression, self.run.began + LAG_SECONDS, self.run.ended - LAG_SECONDS, 1.0
        )
        assert courses
        fresh = self._fresh()
        samples = [(key, at, value) for key, course in courses.items() for at, value in course if at in fresh]
        wrong = [
            (key, at - self.run.began, value)
            for key, at, value in samples
            if not self._was(key, at, value, expected, error)
        ]
        assert len(wrong) <= (1 - ALIKE) * len(samples), wrong
        assert any(value for _, _, value in samples), "nothing has ever been shown"
        assert len(fresh) > 20, "the machine hardly ran"

    def _fresh(self) -> set[float]:
        """Moments just after a scrape: where a machine halts for a while, there is none to compare."""
        seen = self.run.prometheus.over(
            f'{SCRAPED} and up{{job="{SCHEDULER}"}} == 1',
            self.run.began + LAG_SECONDS,
            self.run.ended - LAG_SECONDS,
            1.0,
        )
        return {at for course in seen.values() for at, scraped in course if at - scraped < 2 * SCRAPE_SECONDS}

    def _was(self, key: Labels, at: float, value: float, expected: Callable[[float], Values], error: float) -> bool:
        moments = self.facts.between(at - SCRAPE_SECONDS - LAG_SECONDS, at + LAG_SECONDS)
        return any(abs(expected(moment).get(key, 0.0) - value) <= error for moment in moments)

    def calls_not_scraped(self, process: str, name: str, key: Labels) -> float:
        """Return how many calls of a histogram its process counted before the first scrape or after the last one."""
        counted = self.run.after[process][f"{name}_count"]
        scraped = self.run.prometheus.over(
            f'{name}_count{{job="{process}"}}', self.run.began, self.run.ended, SCRAPE_SECONDS
        )
        ends = [values for labels, values in scraped.items() if set(key) <= set(labels)]
        total = sum(value for labels, value in counted.items() if set(key) <= set(labels))
        return total - sum(values[-1][1] - values[0][1] for values in ends)

    def grown(self, process: str, name: str, label: str = "") -> Values:
        """By how much a series has grown during the run, as its process says, by one label."""
        before, after = self.run.before[process].get(name, {}), self.run.after[process].get(name, {})
        found = Counter[Labels]()
        for key, value in after.items():
            kept = tuple(pair for pair in key if pair[0] == label)
            found[kept] += value - before.get(key, 0.0)  # type: ignore[assignment]
        return dict(found)

    def assert_grown(self, process: str, name: str, label: str, query: int = 0) -> None:
        """As `grown`, but for what happened while we asked."""
        found, expected = self.values(query), self.grown(process, name, label)
        for key in {*found, *expected}:
            assert found.get(key, 0.0) * self.run.span == pytest.approx(expected.get(key, 0.0), rel=0.08, abs=4), key


def jobs_completed(shown: Shown) -> None:
    found = shown.facts.by_namespace(shown.facts.completion)
    shown.assert_counts({labels(namespace=name): float(len(jobs)) for name, jobs in found.items()})


def average_completion(shown: Shown) -> None:
    found = averages(shown.facts.by_namespace(shown.facts.completion), "namespace")
    shown.assert_values(found, error=shown.scrape_error)


def completion_quantiles(shown: Shown) -> None:
    seconds = [shown.facts.completion(job) for job in shown.facts.succeeded]
    for query, share in enumerate((0.5, 0.95, 0.99)):
        shown.assert_values({(): quantile(share, seconds)}, query)


def completion_distribution(shown: Shown) -> None:
    seconds = [shown.facts.completion(job) for job in shown.facts.succeeded]
    counts = {labels(le=str(bound)): float(sum(s <= bound for s in seconds)) for bound in COMPLETION_BUCKETS}
    shown.assert_counts({**counts, labels(le="+Inf"): float(len(seconds))})


def planned_and_real(shown: Shown) -> None:
    estimates = (shown.facts.first_planned(job) for job in shown.facts.succeeded)
    planned = mean(seconds for seconds in estimates if seconds is not None)
    shown.assert_values({(): planned}, 0, shown.scrape_error)
    real = mean(shown.facts.completion(job) for job in shown.facts.succeeded)
    shown.assert_values({(): real}, 1, shown.scrape_error)


def estimate_errors(shown: Shown) -> None:
    estimates = ((job, shown.facts.first_planned(job)) for job in shown.facts.succeeded)
    errors = [shown.facts.completion(job) - seconds for job, seconds in estimates if seconds is not None]
    by_direction = {"late": [e for e in errors if e > 0], "early": [-e for e in errors if e <= 0]}
    found = {key: value for key, value in shown.values().items() if value == value}  # 0/0 where there was none
    expected = averages({name: seconds for name, seconds in by_direction.items() if seconds}, "direction")
    assert found == pytest.approx(expected, rel=shown.scrape_error)


def interval_places(shown: Shown) -> None:
    places = Counter(filter(None, map(shown.facts.place, shown.facts.succeeded)))
    found = {key: value for key, value in shown.values().items() if value}
    expected = {labels(place=place): count / places.total() for place, count in places.items()}
    assert found == pytest.approx(expected, rel=shown.scrape_error)


def queueing(shown: Shown) -> None:
    found = {name: shown.facts.queueing(name) for name in shown.facts.namespaces()}
    shown.assert_values(averages(found, "namespace"), error=shown.scrape_error)


def queueing_quantile(shown: Shown) -> None:
    found = {name: shown.facts.queueing(name) for name in shown.facts.namespaces()}
    expected = {labels(namespace=name): quantile(0.95, seconds) for name, seconds in found.items()}
    shown.assert_values(expected, error=shown.scrape_error)


def gpu_hours(shown: Shown) -> None:
    """Statuses state GPU seconds in whole seconds, and the sum of the seconds of training as attained."""
    rounding = 0.5 * len(shown.facts.last)
    expected = shown.facts.used_by_site("gpuSeconds")
    assert set(expected) == {labels(site=site, tier="Edge") for site in GPUS}
    for key, value in shown.values().items():
        assert 3600 * value == pytest.approx(expected.get(key, 0.0), rel=shown.scrape_error, abs=rounding), key
    trained = sum(shown.facts.used_by_site("trainedGpuSeconds").values())
    assert trained == pytest.approx(shown.facts.total("attainedSeconds"), abs=2 * rounding)


def busy_links(shown: Shown) -> None:
    """The copies were begun at once, so the link was busy for them all, and then no more."""
    course = shown.run.prometheus.over(shown.panel.queries[0].expression, shown.run.began, shown.run.ended, 1.0)
    begun = {dict(key)["source"]: max(value for _, value in values) for key, values in course.items()}
    promised = shown.facts.copies()["edge-a", "edge-b"] * 8 * BYTES / 8e6
    assert begun["edge-a"] == pytest.approx(promised, abs=SCRAPE_SECONDS + LAG_SECONDS)
    shown.assert_values({})


def stops(shown: Shown) -> None:
    """All of this run were planned, and none was lost."""
    assert shown.facts.total("preemptions") > 0
    shown.assert_counts({labels(reason="planned"): shown.facts.total("preemptions")})


def lost_work(shown: Shown) -> None:
    shown.assert_counts({(): shown.facts.total("lostBatches")})


def thrash(shown: Shown) -> None:
    seconds = shown.facts.stopped()
    shown.assert_values({(): sum(s <= 64 for s in seconds) / len(seconds)})


def time_run(shown: Shown) -> None:
    """Pods state times in whole seconds, and save for 0.3 s after the request to stop."""
    assert shown.values()[()] == pytest.approx(mean(shown.facts.stopped()), abs=1.0)


def stops_per_job(shown: Shown) -> None:
    shown.assert_values(
        {(): shown.facts.total("preemptions") / len(shown.facts.succeeded)}, error=2 * shown.scrape_error
    )


def start_times(shown: Shown) -> None:
    """Weighted by their counts, the two are the mean of all start times in pods and plans."""
    counts = shown.grown(SCHEDULER, "tranche_window_start_seconds_count", "handover")
    measured = shown.facts.starts()
    assert sum(counts.values()) == len(measured)
    shares = sum(value * counts[key] for key, value in shown.values().items() if counts[key])
    assert shares / len(measured) == pytest.approx(mean(measured), abs=0.5)


def errors(shown: Shown) -> None:
    """One request was nonsense."""
    shown.assert_counts({labels(kind="request"): 1.0}, 0)
    shown.assert_grown(SCHEDULER, "tranche_watch_errors_total", "kind", 1)
    shown.assert_grown(OPERATOR, "tranche_operator_reconcile_errors_total", "", 2)


def requests(shown: Shown) -> None:
    shown.assert_grown(SCHEDULER, "tranche_extender_request_seconds_count", "verb")
    bound = sum(any(pod["spec"].get("nodeName") for _, pod in versions) for versions in shown.run.pods.values())
    filtered = shown.values()[labels(verb="filter")] * shown.run.span
    assert filtered >= 0.9 * bound, "kube-scheduler asks at least once for each pod"


def writes(shown: Shown) -> None:
    shown.assert_grown(SCHEDULER, "tranche_status_writes_total", "result")


def quantiles_as_served(process: str, *histograms: tuple[str, float, str]) -> Check:
    """Check each query against the quantile of the served calls.

    An increase in Prometheus does not contain the calls before the first scrape of a series and after its last one.
    These calls may have been the slowest ones, or the fastest.
    """

    def check(shown: Shown) -> None:
        for query, (name, share, label) in enumerate(histograms):
            buckets = shown.run.after[process][f"{name}_bucket"]
            for key, value in shown.values(query).items():
                if value != value:  # nothing has been observed
                    continue
                own = {dict(k)["le"]: v for k, v in buckets.items() if not label or set(key) <= set(k)}
                unseen = shown.calls_not_scraped(process, name, key)
                seen = own["+Inf"] - unseen
                lowest, _ = bucket_of(own, share * seen)
                _, highest = bucket_of(own, unseen + share * seen)
                assert lowest <= value <= highest, (name, key, own, unseen)

    return check


def bucket_of(buckets: Mapping[str, float], rank: float) -> tuple[float, float]:
    """Return the bounds of the histogram's bucket with this rank, and one bucket more on each side.

    The next bucket covers the rounding by the extrapolation of increases.
    """
    bounds = sorted(buckets, key=float)
    place = next(n for n, bound in enumerate(bounds) if buckets[bound] >= rank)
    below = float(bounds[place - 2]) if place >= 2 else 0.0
    return below, float(bounds[min(place + 1, len(bounds) - 1)])


def operator_pods(shown: Shown) -> None:
    shown.assert_grown(OPERATOR, "tranche_operator_pods_total", "result")
    created = shown.values()[labels(result="created")] * shown.run.span
    assert created == pytest.approx(len(shown.run.pods), rel=0.05)


def api_requests(shown: Shown) -> None:
    found = shown.values()
    grown = [shown.grown(process, "tranche_api_requests_total", "code") for process in (SCHEDULER, OPERATOR)]
    for key in (labels(code="200"), labels(code="201")):
        expected = sum(part.get(key, 0.0) for part in grown)
        assert found[key] * shown.run.span == pytest.approx(expected, rel=0.08, abs=4)


def silence(shown: Shown) -> None:
    """Pods and jobs changed until the end; nothing may be silent for longer than the server's bookmarks come."""
    found = shown.values()
    assert {dict(key)["kind"] for key in found} == {"pods", "nodes", "jobs", "sites", "quotas"}
    assert all(0 <= age < shown.run.span + 70 for age in found.values())
    last = max(at for versions in shown.run.pods.values() for at, _ in versions)
    assert found[labels(kind="pods")] == pytest.approx(shown.run.ended - last, abs=SCRAPE_SECONDS + LAG_SECONDS)


def memory(shown: Shown) -> None:
    shown.assert_values({labels(process=name): float(size) for name, size in shown.run.memory.items()}, error=0.2)


EXPECTED: dict[tuple[str, str], Check] = {
    ("jct", "Jobs completed"): jobs_completed,
    ("jct", "Average completion time"): average_completion,
    ("jct", "Completion time: quantiles"): completion_quantiles,
    ("jct", "Completion time: distribution"): completion_distribution,
    ("jct", "Planned and real completion time"): planned_and_real,
    ("jct", "Error of the first estimate"): estimate_errors,
    ("jct", "Completions in their first interval"): interval_places,
    ("queue", "Jobs by phase"): lambda shown: shown.assert_course(shown.facts.phases),
    ("queue", "Waiting jobs by reason"): lambda shown: shown.assert_course(shown.facts.waits),
    ("queue", "Planned starts"): lambda shown: shown.assert_course(shown.facts.planned_starts),
    ("queue", "Oldest waiting job"): lambda shown: shown.assert_course(shown.facts.oldest, 1.5 + LAG_SECONDS),
    ("queue", "Queueing time"): queueing,
    ("queue", "Queueing time: 95 %"): queueing_quantile,
    ("sites", "GPUs in use"): lambda shown: shown.assert_course(shown.facts.used),
    ("sites", "GPUs of the nodes"): lambda shown: shown.assert_course(shown.facts.gpus),
    ("sites", "Utilisation"): lambda shown: shown.assert_course(shown.facts.utilisation),
    ("sites", "GPUs planned"): lambda shown: shown.assert_course(shown.facts.planned),
    ("sites", "Nodes excluded"): lambda shown: shown.assert_values({}),
    ("sites", "Copies of chunks"): lambda shown: shown.assert_counts(shown.facts.copied()),
    ("sites", "Copies in bytes"): lambda shown: shown.assert_counts(shown.facts.copied(BYTES)),
    ("sites", "GPU-hours by site"): gpu_hours,
    ("sites", "Bytes copied by site"): lambda shown: shown.assert_counts(shown.facts.copied_to(BYTES)),
    ("sites", "Bytes copied but unused by site"): lambda shown: shown.assert_counts(
        shown.facts.used_by_site("inVainBytes")
    ),
    ("sites", "Links: time still busy"): busy_links,
    ("preemption", "Workers stopped"): stops,
    ("preemption", "Pods without a started container"): lambda shown: shown.assert_counts({}),
    ("preemption", "Work lost"): lost_work,
    ("preemption", "Thrash"): thrash,
    ("preemption", "Time run before the stop"): time_run,
    ("preemption", "Stops per completed job"): stops_per_job,
    ("preemption", "Time to start a worker"): start_times,
    ("scheduler", "Leader"): lambda shown: shown.assert_values({(): 1.0}),
    ("scheduler", "Extender: 99 %"): quantiles_as_served(SCHEDULER, ("tranche_extender_request_seconds", 0.99, "verb")),
    ("scheduler", "Extender: requests"): requests,
    ("scheduler", "Planner"): quantiles_as_served(
        SCHEDULER,
        ("tranche_plan_seconds", 0.5, ""),
        ("tranche_plan_seconds", 0.99, ""),
        ("tranche_forecast_seconds", 0.99, ""),
    ),
    ("scheduler", "Status writes"): writes,
    ("scheduler", "Errors"): errors,
    ("scheduler", "Watches: silence"): silence,
    ("scheduler", "Watches: complete lists"): lambda shown: shown.assert_counts({}),
    ("scheduler", "Operator: reconciles"): quantiles_as_served(
        OPERATOR, ("tranche_operator_reconcile_seconds", 0.5, ""), ("tranche_operator_reconcile_seconds", 0.99, "")
    ),
    ("scheduler", "Operator: pods"): operator_pods,
    ("scheduler", "Requests to the API server"): api_requests,
    ("scheduler", "Memory"): memory,
}


def test_every_panel_has_its_expectation() -> None:
    assert list(EXPECTED) == [(dashboard.name, panel.title) for dashboard in DASHBOARDS for panel in dashboard.panels]


@pytest.mark.parametrize(("name", "title"), EXPECTED)
def test_a_panel_shows_what_the_run_says(ran: Run, name: str, title: str) -> None:
    panels = {(dashboard.name, panel.title): panel for dashboard in DASHBOARDS for panel in dashboard.panels}
    EXPECTED[name, title](Shown(panels[name, title], ran))


def test_jobs_have_the_configured_kube_state_metrics_series(ran: Run) -> None:
    config = load_yaml((CHART / "files/kube-state-metrics.yaml").read_text())
    facts = Facts(ran)
    jobs = [version for versions in ran.jobs.values() for _, version in versions]
    found = [series_of(config, job) for job in jobs]
    names = {name for series in found for name, _ in series}
    wanted = {f"tranche_trainingjob_{m['name']}" for m in config["spec"]["resources"][0]["metrics"]}
    assert names == wanted, "a field has never been there"
    last = {key: series_of(config, job) for key, job in facts.last.items()}
    stops = sum(
        value for series in last.values() for (name, _), value in series.items() if name.endswith("preemptions_total")
    )
    assert stops == facts.total("preemptions")
    for job in facts.succeeded:
        own = labels(namespace=job["metadata"]["namespace"], trainingjob=job["metadata"]["name"])
        series = last[f"{job['metadata']['namespace']}/{job['metadata']['name']}"]
        work = [series[f"tranche_trainingjob_{part}", own] for part in ("chunks", "epochs", "chunk_batches")]
        assert series["tranche_trainingjob_trained_batches", own] == pytest.approx(prod(work))
        state = labels(phase="Succeeded", **dict(own))
        assert series["tranche_trainingjob_phase", state] == 1
