"""Nodes on which pods fail or are refused: when they are excluded, and which failures they explain."""

import pytest

from support.bad_nodes import HOUR, POLICIES, Kubelets, busy_site, excluded_node, exclusion, fail, on
from support.builders import gang, job, node, planner, worker
from tranche.model import Site, Tier
from tranche.planner import (
    ChiefEnded,
    JobSubmitted,
    NodeChanged,
    NodeRemoved,
    Outcome,
    ParameterServerEnded,
    Planner,
    PodStartFailed,
    Tick,
    WorkerEnded,
    WorkerStarted,
)
from tranche.planner.learned_state import learned_state_of, recall
from tranche.state.node_health import HealthSettings, PodResult


@pytest.mark.parametrize("how", ["Failed", "Refused"])
@pytest.mark.parametrize("policy", POLICIES)
def test_bad_node_of_four_gets_at_most_5_pods_in_15_min(policy: str, how: Outcome) -> None:
    nodes = busy_site(policy, {"bad": how})
    nodes.run(900.0)
    assert not nodes.failed()
    assert 2 <= nodes.started["bad"] <= 5, nodes.started


def test_one_job_waits_for_other_nodes_after_failures_on_one() -> None:
    nodes = busy_site("chunk", {"bad": "Failed"}, waiting=1)
    nodes.run(900.0)
    assert not nodes.failed()
    assert nodes.started["bad"] <= 3
    assert nodes.planner.plan_of("default/job0", nodes.now).explanation


@pytest.mark.parametrize("policy", POLICIES)
def test_refused_pods_of_one_job_are_few_and_no_failures(policy: str) -> None:
    nodes = busy_site(policy, {"bad": "Refused"}, waiting=1)
    nodes.run(900.0)
    assert nodes.planner.cluster.jobs["default/job0"].failures == 0
    assert nodes.started["bad"] <= 5


def test_refused_pods_at_an_unlimited_site_back_off() -> None:
    p = planner("chunk", [], [Site("cloud", Tier.CLOUD, unlimited=True)])
    p.handle(JobSubmitted(job("a")), 0.0)
    refused = 0
    for second in range(1, 601):
        for attempt, run in list(p.cluster.jobs["default/a"].runs.items()):
            refused += 1
            assert run.window.site == "cloud"
            p.handle(WorkerEnded("default/a", attempt, "Refused", float(second)), float(second))
        p.handle(Tick(), float(second))
    assert 3 <= refused <= 8


def test_failed_job_goes_to_another_node_first() -> None:
    p = planner("chunk", [node("n1", speed=9.0), node("n2")])
    p.handle(JobSubmitted(job("a")), 0.0)
    assert fail(p, "default/a", 1.0) == "n1"
    p.handle(Tick(), 30.0)
    assert fail(p, "default/a", 31.0) == "n2"


def test_job_with_one_possible_node_tries_it_again() -> None:
    p = planner("chunk", [node("n1"), node("n2")])
    p.handle(JobSubmitted(on("n1", job("a"))), 0.0)
    assert fail(p, "default/a", 1.0) == "n1"
    p.handle(Tick(), 12.0)
    assert fail(p, "default/a", 13.0) == "n1"


def test_jobs_of_all_kinds_leave_out_an_excluded_node() -> None:
    p = excluded_node()
    ps = worker(gpus=0)
    p.handle(JobSubmitted(job("servers", servers=1, server=ps)), 2.0)
    p.handle(JobSubmitted(gang("gang", members=2, chief=ps)), 2.0)
    states = [p.cluster.jobs[f"default/{name}"] for name in ("servers", "gang")]
    used = {run.window.node for state in states for run in state.runs.values()}
    used |= {server.planned.node for state in states for server in state.servers}
    assert used
    assert "bad" not in used
    assert all(run.window.fallbacks.count("bad") == 0 for state in states for run in state.runs.values())


def test_crashing_jobs_of_one_namespace_do_not_close_a_site() -> None:
    p = planner("chunk", [node(f"n{i}") for i in range(8)])
    now = 0.0
    for number in range(200):
        now += 5.0
        p.handle(JobSubmitted(job(f"crash{number}", now, backoff_limit=0)), now)
        state = p.cluster.jobs[f"default/crash{number}"]
        assert state.runs, "some node takes it"
        fail(p, state.job.key, now + 1.0)
        assert len(list(p.cluster.health.lasting())) <= 2
    assert not list(p.cluster.health.lasting()), "the namespace fails on most nodes"


def test_job_that_fails_on_every_node_excludes_none() -> None:
    p = planner("chunk", [node(f"n{i}") for i in range(4)])
    p.handle(JobSubmitted(job("crash", backoff_limit=20)), 0.0)
    for second in range(1, 4000):
        if p.cluster.jobs["default/crash"].runs:
            fail(p, "default/crash", float(second))
        p.handle(Tick(), float(second))
    assert not p.cluster.health.exclusions


def test_exclusion_ends_when_its_jobs_fail_on_other_nodes_too() -> None:
    p = planner("chunk", [node("bad", speed=2.0), node("n1"), node("n2"), node("n3")])
    for name in ("one", "two"):
        p.handle(JobSubmitted(job(name)), 0.0)
        fail(p, f"default/{name}", 1.0)
    assert exclusion(p)
    p.handle(Tick(), 20.0)
    fail(p, "default/one", 21.0)
    assert not exclusion(p)


def test_job_that_trains_elsewhere_excludes_a_node_alone() -> None:
    p = planner("chunk", [node("bad", speed=2.0), node("n1"), node("n2")])
    p.handle(JobSubmitted(job("a", chunks=9, max_workers=3, backoff_limit=9)), 0.0)
    state, now = p.cluster.jobs["default/a"], 0.0
    while not exclusion(p) and now < 2000.0:
        now += 1.0
        for attempt, run in list(state.runs.items()):
            if run.started is None:
                p.handle(WorkerStarted("default/a", attempt, now), now)
            elif run.window.node == "bad":
                p.handle(WorkerEnded("default/a", attempt, "Failed", now, exit_code=1), now)
            elif now - run.started > 200.0:
                p.handle(WorkerEnded("default/a", attempt, "Succeeded", now), now)
        p.handle(Tick(), now)
    assert exclusion(p)
    assert state.failures == 2


@pytest.mark.parametrize(("namespaces", "excluded"), [(("a", "a"), False), (("a", "b"), True)])
def test_only_node_of_a_site_is_excluded_for_several_namespaces(namespaces: tuple[str, ...], excluded: bool) -> None:
    p = planner("chunk", [node("bad", gpus=2)])
    for number, namespace in enumerate(namespaces):
        p.handle(JobSubmitted(job(f"j{number}", key=f"{namespace}/j{number}")), 0.0)
    for number, namespace in enumerate(namespaces):
        fail(p, f"{namespace}/j{number}", 1.0)
    assert bool(exclusion(p)) is excluded


def test_several_namespaces_take_precedence_over_one() -> None:
    p = planner("chunk", [node("bad", gpus=2), node("worse", gpus=2), node("n1"), node("n2")])
    for name, keys in (("bad", ("a/1", "a/2")), ("worse", ("b/1", "c/1"))):
        for key in keys:
            p.handle(JobSubmitted(on(name, job(key[-1], key=key))), 0.0)
        for key in keys:
            fail(p, key, 1.0)
    assert exclusion(p, "worse")
    assert not exclusion(p, "bad")


def test_good_pods_in_between_keep_a_node() -> None:
    p = planner("chunk", [node("n1"), node("n2")])
    for number in range(12):
        now = 10.0 * number
        p.handle(JobSubmitted(on("n1", job(f"j{number}", now, backoff_limit=0))), now)
        fail(p, f"default/j{number}", now + 1.0, "Failed" if number % 4 == 0 else "Succeeded")
    assert not p.cluster.health.exclusions


@pytest.mark.parametrize("first", [node("bad", unschedulable=True), None])
def test_repaired_node_is_used_at_once(first: object) -> None:
    p = excluded_node()
    p.handle(NodeChanged(first) if first else NodeRemoved("bad"), 2.0)  # type: ignore[arg-type]
    p.handle(NodeChanged(node("bad")), 3.0)
    assert not p.cluster.health.exclusions
    p.handle(JobSubmitted(on("bad", job("a"))), 4.0)
    assert p.cluster.jobs["default/a"].runs


def test_exclusion_survives_a_change_of_leader() -> None:
    p = excluded_node()
    after = planner("chunk", [node("bad"), node("n1"), node("n2"), node("n3")])
    recall(after.context, learned_state_of(p.cluster, 0.0))
    after.handle(JobSubmitted(on("bad", job("a"))), 2.0)
    assert not after.cluster.jobs["default/a"].runs
    after.handle(Tick(), 301.0)
    assert after.cluster.jobs["default/a"].runs


def test_exclusion_ends_if_a_new_leader_finds_another_machine() -> None:
    p = excluded_node()
    after = planner("chunk", [node("bad", uid="new-machine"), node("n1"), node("n2"), node("n3")])
    p.cluster.health.exclusions["bad"].uid = "old-machine"
    recall(after.context, learned_state_of(p.cluster, 0.0))
    assert not after.cluster.health.exclusions


def test_explanation_names_the_excluded_node_and_the_kubelet() -> None:
    p = planner("chunk", [node("bad", gpus=2), *(node(f"n{i}") for i in range(3))])
    for name in ("one", "two"):
        p.handle(JobSubmitted(on("bad", job(name))), 0.0)
    for name in ("one", "two"):
        fail(p, f"default/{name}", 1.0, "Refused", "UnexpectedAdmissionError: no healthy devices")
    p.forecast(20.0)
    text = p.plan_of("default/one", 20.0).explanation
    assert "; bad excluded until " in text
    assert "UnexpectedAdmissionError: no healthy devices" in text


def test_worker_of_an_excluded_node_goes_on() -> None:
    p = planner("chunk", [node("bad", gpus=3), *(node(f"n{i}") for i in range(3))])
    p.handle(JobSubmitted(on("bad", job("good", seconds=1e4))), 0.0)
    p.handle(WorkerStarted("default/good", 1, 0.0), 0.0)
    for name in ("one", "two"):
        p.handle(JobSubmitted(on("bad", job(name))), 0.0)
    for name in ("one", "two"):
        fail(p, f"default/{name}", 1.0)
    assert exclusion(p)
    (run,) = p.cluster.jobs["default/good"].runs.values()
    assert not run.closing


def test_lost_pods_of_a_node_that_reboots_exclude_it() -> None:
    p = planner("chunk", [node("bad", gpus=2), node("n1")])
    for name in ("one", "two"):
        p.handle(JobSubmitted(on("bad", job(name))), 0.0)
    for name in ("one", "two"):
        fail(p, f"default/{name}", 1.0, "Lost", "ContainerStatusUnknown")
    assert exclusion(p)
    assert p.cluster.jobs["default/one"].failures == 0


def test_health_of_nodes_can_be_switched_off() -> None:
    p = planner("chunk", [node("bad", gpus=2), node("n1")], health=HealthSettings(jobs=0))
    for name in ("one", "two"):
        p.handle(JobSubmitted(on("bad", job(name))), 0.0)
    for name in ("one", "two"):
        fail(p, f"default/{name}", 1.0)
    assert not p.cluster.health.exclusions


def test_refused_parameter_server_goes_to_another_node() -> None:
    p = planner("chunk", [node("n1"), node("n2")])
    p.handle(JobSubmitted(job("a", servers=1, server=worker(gpus=0))), 0.0)
    (server,) = p.cluster.jobs["default/a"].servers
    first = server.planned.node
    p.handle(ParameterServerEnded("default/a", 0, server.planned.attempt, "Refused", reason="OutOfcpu"), 1.0)
    (again,) = p.cluster.jobs["default/a"].servers
    assert again.planned.node != first


def test_refused_chief_pauses_the_gang_without_a_failure() -> None:
    p = planner("chunk", [node("n1", gpus=2)])
    p.handle(JobSubmitted(gang("a", chief=worker(gpus=0))), 0.0)
    state = p.cluster.jobs["default/a"]
    assert state.chief
    p.handle(ChiefEnded("default/a", state.chief.planned.attempt, "Refused", reason="NodeShutdown"), 1.0)
    assert state.failures == 0
    assert state.held_until > 1.0
    assert "NodeShutdown" in state.hold_reason


def test_start_failure_counts_and_frees_the_gpu() -> None:
    p = planner("chunk", [node("n1")])
    p.handle(JobSubmitted(job("a", backoff_limit=0)), 0.0)
    p.handle(PodStartFailed("default/a", 1, "ErrImagePull", "not found"), 600.0)
    state = p.cluster.jobs["default/a"]
    assert (state.failures, state.failed) == (1, True)
    assert p.cluster.nodes["n1"].free_gpus == 1
    p.handle(WorkerEnded("default/a", 1, "Preempted", 601.0), 601.0)
    assert [one.reason for one in state.records] == ["ErrImagePull"]


def test_start_failure_of_a_gang_stops_all_of_it() -> None:
    p = planner("chunk", [node("n1", gpus=2), node("n2", gpus=2)])
    p.handle(JobSubmitted(gang("a")), 0.0)
    p.handle(PodStartFailed("default/a", 1, "InvalidImageName", "couldn't parse"), 60.0)
    state = p.cluster.jobs["default/a"]
    assert all(run.closing for run in state.runs.values())
    assert state.failures == 1
    assert "InvalidImageName: couldn't parse" in state.hold_reason


def test_start_failure_of_a_worker_that_has_started_is_void() -> None:
    p = planner("chunk", [node("n1")])
    p.handle(JobSubmitted(job("a")), 0.0)
    p.handle(WorkerStarted("default/a", 1, 5.0), 5.0)
    p.handle(PodStartFailed("default/a", 1, "ErrImagePull"), 6.0)
    assert p.cluster.jobs["default/a"].failures == 0


@pytest.mark.parametrize(("reported", "counted"), [(-3600.0, 10.0), (40.0, 40.0), (7200.0, 50.0)])
def test_start_time_is_between_opening_and_now(reported: float, counted: float) -> None:
    p = planner("chunk", [node("n1")])
    p.handle(JobSubmitted(job("a", 10.0)), 10.0)
    p.handle(WorkerStarted("default/a", 1, reported), 50.0)
    assert p.cluster.jobs["default/a"].runs[1].started == counted


@pytest.mark.parametrize(
    ("reported", "counted"),
    [(-86_400.0, 15.0), (20.0, 20.0), (3620.0, 15.0)],
    ids=["one day behind", "right", "one hour ahead"],
)
def test_start_time_of_adopted_worker_is_within_its_plan(reported: float, counted: float) -> None:
    """A start after the take-over is impossible; the start in the plan is the opening of the window or later."""
    one = job("a", 10.0)
    before, after = planner("chunk", [node("n1")]), planner("chunk", [node("n1")])
    before.handle(JobSubmitted(one), 15.0)
    plan, progress = before.plan_of("default/a", 600.0), before.progress_of("default/a")
    after.restore([JobSubmitted(one, plan, progress)], 600.0, [WorkerStarted("default/a", 1, reported)])
    assert after.cluster.jobs["default/a"].runs[1].started == counted


# ---- failures that a node explains


def attempts(p: Planner, key: str) -> int:
    return p.cluster.jobs[key].attempts


def test_failure_is_taken_back_when_another_job_fails_there() -> None:
    p = planner("chunk", [node("bad", gpus=2), node("n1")])
    for name in ("one", "two"):
        p.handle(JobSubmitted(on("bad", job(name))), 0.0)
    fail(p, "default/one", 1.0)
    assert p.cluster.jobs["default/one"].failures == 1
    fail(p, "default/two", 2.0)
    assert [p.cluster.jobs[f"default/{name}"].failures for name in ("one", "two")] == [0, 0]
    assert [p.progress_of(f"default/{name}").failures for name in ("one", "two")] == [0, 0]


def test_failure_beside_others_that_train_counts() -> None:
    p = planner("chunk", [node("n1"), node("n2")])
    outcomes: list[Outcome] = ["Failed", "Succeeded", "Succeeded", "Failed"]
    for number, how in enumerate(outcomes):
        p.handle(JobSubmitted(on("n1", job(f"j{number}", 10.0 * number, weight=1 + number))), 10.0 * number)
        p.handle(Tick(), 10.0 * number)
        fail(p, f"default/j{number}", 10.0 * number + 1.0, how)
    assert p.cluster.jobs["default/j3"].failures == 0, "half of the pods"
    p = planner("chunk", [node("n1"), node("n2")])
    for number, how in enumerate([*outcomes[:3], outcomes[1], *outcomes[3:]]):
        p.handle(JobSubmitted(on("n1", job(f"j{number}", 10.0 * number, weight=1 + number))), 10.0 * number)
        fail(p, f"default/j{number}", 10.0 * number + 1.0, how)
    assert p.cluster.jobs["default/j4"].failures == 1


def test_pause_grows_with_failures_that_are_taken_back() -> None:
    p = planner("chunk", [node("n1", gpus=2), node("n2", gpus=2)])
    pauses = []
    for name in ("one", "two"):
        p.handle(JobSubmitted(job(name)), 0.0)
    for now in (0.0, 60.0):
        p.handle(Tick(), now)
        for name in ("one", "two"):
            fail(p, f"default/{name}", now + 1.0)
        pauses.append(p.cluster.jobs["default/two"].held_until - now - 1.0)
    assert [p.cluster.jobs[f"default/{name}"].failures for name in ("one", "two")] == [0, 0]
    assert pauses == [10.0, 20.0]


def test_failed_job_stays_failed_when_its_node_is_blamed() -> None:
    p = planner("chunk", [node("bad", gpus=2), node("n1")])
    p.handle(JobSubmitted(on("bad", job("one", backoff_limit=1))), 0.0)
    p.handle(JobSubmitted(on("bad", job("two", backoff_limit=1))), 0.0)
    fail(p, "default/one", 1.0)
    p.handle(Tick(), 60.0)
    fail(p, "default/one", 61.0)
    assert p.cluster.jobs["default/one"].failed
    fail(p, "default/two", 62.0)
    assert p.cluster.jobs["default/one"].failed
    assert p.cluster.jobs["default/two"].failures == 0


def test_backoff_limit_0_allows_no_failure_on_a_bad_node() -> None:
    p = planner("chunk", [node("bad", gpus=2), node("n1")])
    for name in ("one", "two"):
        p.handle(JobSubmitted(on("bad", job(name, backoff_limit=0))), 0.0)
    for name in ("one", "two"):
        fail(p, f"default/{name}", 1.0)
    assert all(state.failed for state in p.cluster.jobs.values())


@pytest.mark.parametrize("limit", [1, 2, 6])
def test_jobs_that_always_fail_end_within_twice_their_limit(limit: int) -> None:
    names = [f"n{number}" for number in range(8)]
    nodes = Kubelets(planner("chunk", [node(name, gpus=2) for name in names]), dict.fromkeys(names, "Failed"))
    for number in range(6):
        nodes.planner.handle(JobSubmitted(job(f"crash{number}", backoff_limit=limit)), 0.0)
    nodes.run(3 * HOUR)
    assert len(nodes.failed()) == 6
    assert max(attempts(nodes.planner, key) for key in nodes.failed()) <= 2 * limit + 3, "two while nodes seem bad"


def test_start_failures_of_two_jobs_on_a_node_are_taken_back() -> None:
    p = planner("chunk", [node("bad", gpus=2), node("n1")])
    for name in ("one", "two"):
        p.handle(JobSubmitted(on("bad", job(name))), 0.0)
    for name in ("one", "two"):
        p.handle(PodStartFailed(f"default/{name}", 1, "ErrImagePull", "no route to host"), 600.0)
    states = [p.cluster.jobs[f"default/{name}"] for name in ("one", "two")]
    assert [(state.failures, state.held_until) for state in states] == [(0, 610.0)] * 2


def test_failed_servers_of_two_jobs_on_a_node_are_taken_back() -> None:
    p = planner("chunk", [node("bad", gpus=2)])
    for name in ("one", "two"):
        p.handle(JobSubmitted(job(name, servers=1, server=worker(gpus=0))), 0.0)
    for name in ("one", "two"):
        state = p.cluster.jobs[f"default/{name}"]
        (server,) = state.servers
        p.handle(ParameterServerEnded(state.job.key, 0, server.planned.attempt, "Failed", exit_code=1), 1.0)
        assert state.servers, "it is replaced at once"
    assert [p.cluster.jobs[f"default/{name}"].failures for name in ("one", "two")] == [0, 0]


# ---- several bad nodes


def cluster_with_bad_nodes(policy: str, good: int, jobs: int, limit: int) -> Kubelets:
    """Return nodes with two GPUs, of which three are bad, and long jobs of one GPU."""
    names, gpus = [f"bad{number}" for number in range(3)], 2
    p = planner(policy, [node(name, gpus=gpus) for name in (*names, *(f"n{number}" for number in range(good)))])
    for number in range(jobs):
        p.handle(JobSubmitted(job(f"job{number}", seconds=HOUR, backoff_limit=limit)), 0.0)
    return Kubelets(p, dict.fromkeys(names, "Failed"))


@pytest.mark.parametrize("policy", POLICIES)
def test_three_bad_nodes_of_12_get_few_pods_and_fail_no_job(policy: str) -> None:
    nodes = cluster_with_bad_nodes(policy, good=9, jobs=24, limit=2)
    excluded = set()
    for _ in range(300):
        nodes.run(3.0)
        excluded |= {one.node for one in nodes.planner.cluster.health.lasting()}
    assert not nodes.failed()
    assert all(nodes.started[name] <= (14 if name in excluded else 5) for name in nodes.bad), nodes.started


@pytest.mark.parametrize("jobs", [8, 16])
def test_three_bad_nodes_of_four_fail_no_job(jobs: int) -> None:
    nodes = cluster_with_bad_nodes("chunk", good=1, jobs=jobs, limit=6)
    nodes.run(900.0)
    assert not nodes.failed()
    assert sum(one.node in nodes.bad for one in nodes.planner.cluster.health.lasting()) == 1, "a quarter of the site"


def crash_on(p: Planner, nodes: list[str], now: float, jobs: int = 2, lasted: float = 0.0) -> None:
    """Let new jobs fail on each of the nodes, one second after another."""
    for name in nodes:
        for number in range(jobs):
            key = f"{name}-{number}-{now:g}"
            p.handle(JobSubmitted(on(name, job(key, now, weight=1e3, backoff_limit=0))), now)
            (attempt,) = p.cluster.jobs[f"default/{key}"].runs
            p.handle(WorkerStarted(f"default/{key}", attempt, now), now)
            p.handle(WorkerEnded(f"default/{key}", attempt, "Failed", now + lasted, exit_code=1), now + lasted)


@pytest.mark.parametrize(
    ("trained", "lasted", "excluded"), [(31.0, 0.0, True), (29.0, 0.0, False), (45.0, 20.0, True), (35.0, 20.0, False)]
)
def test_namespace_counts_while_two_pods_train_longer(trained: float, lasted: float, excluded: bool) -> None:
    p = planner("chunk", [node("n0", gpus=2), *(node(f"n{number}", gpus=2) for number in range(1, 9))])
    for number in range(2):
        p.handle(JobSubmitted(on("n0", job(f"good{number}", seconds=HOUR))), 0.0)
        p.handle(WorkerStarted(f"default/good{number}", 1, 0.0), 0.0)
    crash_on(p, ["n1", "n2", "n3"], trained - lasted, jobs=1, lasted=lasted)
    crash_on(p, ["n1"], trained + 0.5, jobs=1)
    assert bool(exclusion(p, "n1")) is excluded


def two_pods_train(p: Planner, name: str, now: float = 0.0) -> None:
    """Let two new jobs succeed on a node."""
    for number in range(2):
        p.handle(JobSubmitted(on(name, job(f"good{number}"))), now)
        fail(p, f"default/good{number}", now + 1.0, "Succeeded")


def test_namespace_counts_after_two_pods_have_trained() -> None:
    p = planner("chunk", [node(f"n{number}", gpus=2) for number in range(9)])
    two_pods_train(p, "n0")
    crash_on(p, ["n1", "n2", "n3"], 2.0, jobs=1)
    crash_on(p, ["n1"], 3.0, jobs=1)
    assert exclusion(p, "n1")


def test_namespace_is_void_once_a_pod_trains_where_one_failed() -> None:
    p = planner("chunk", [node(f"n{number}", gpus=2) for number in range(9)])
    two_pods_train(p, "n0")
    crash_on(p, ["n1", "n2", "n3"], 2.0, jobs=1)
    p.handle(JobSubmitted(on("n3", job("other", 3.0, key="b/other"))), 3.0)
    p.handle(WorkerStarted("b/other", 1, 3.0), 3.0)
    crash_on(p, ["n1"], 32.0, jobs=1)
    assert exclusion(p, "n1"), "the other pod has trained for 29 s"
    crash_on(p, ["n2"], 34.0, jobs=1)
    assert not list(p.cluster.health.lasting())


def test_one_job_that_fails_on_a_good_node_voids_no_namespace() -> None:
    p = planner("chunk", [node(f"n{number}", gpus=4) for number in range(9)])
    p.handle(JobSubmitted(on("n0", job("doomed", backoff_limit=0))), 0.0)
    fail(p, "default/doomed", 0.5)
    two_pods_train(p, "n0", 1.0)
    crash_on(p, ["n1", "n2", "n3"], 3.0, jobs=1)
    crash_on(p, ["n1"], 5.0, jobs=1)
    assert exclusion(p, "n1")


def test_namespace_that_fails_beside_its_good_pods_is_void() -> None:
    p = planner("chunk", [node(f"n{number}", gpus=4) for number in range(9)])
    two_pods_train(p, "n0")
    crash_on(p, ["n0"], 2.0)
    crash_on(p, ["n1", "n2", "n3"], 3.0, jobs=1)
    crash_on(p, ["n1"], 4.0, jobs=1)
    assert not list(p.cluster.health.lasting())


@pytest.mark.parametrize(("others", "excluded"), [(1, False), (2, True)])
def test_job_of_two_bad_nodes_counts_where_more_jobs_fail(others: int, excluded: bool) -> None:
    p = planner("chunk", [node("bad", gpus=4), *(node(f"n{number}") for number in range(4))])
    p.handle(JobSubmitted(on("n1", job("one"))), 0.0)
    fail(p, "default/one", 1.0)
    state = p.cluster.jobs["default/one"]
    health, problem = p.cluster.health, PodResult("default/one", 2.0, "exit code 1")
    for result in (problem, *(PodResult(f"default/o{number}", 2.0, "exit code 1") for number in range(others))):
        health.note("bad", result)
    assert state.failures == 1
    assert health.is_evidence("bad", problem) is excluded
