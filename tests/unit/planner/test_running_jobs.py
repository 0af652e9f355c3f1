"""Running jobs by rank, while their ranks fall."""

from collections.abc import Iterable

from support.builders import job
from tranche.planner.running_jobs import RankKey, RunningJobs, RunningJobsBySite
from tranche.state.job import JobState


def state(name: str, submitted: float = 0.0) -> JobState:
    return JobState(job(name, submitted))


def names(found: Iterable[tuple[RankKey, JobState]]) -> list[str]:
    return [one.job.key.removeprefix("default/") for _, one in found]


def test_rank_falls_with_time_and_fast_job_overtakes_slow_one() -> None:
    running = RunningJobs()
    slow, fast, new = state("slow"), state("fast"), state("new")
    running.put(slow, (0.0, 100.0, 0.0), 1.0, 2, now=0.0)
    running.put(fast, (0.0, 150.0, 0.0), 8.0, 4, now=0.0)
    assert names(running.jobs_behind(new, (0.0, 50.0, 0.0), now=0.0)) == ["fast", "slow"]
    assert names(running.jobs_behind(new, (0.0, 50.0, 0.0), now=10.0)) == ["slow", "fast"]
    assert running.gpus_behind(new, (0.0, 80.0, 0.0), now=10.0) == 2
    assert running.gpus_behind(new, (0.0, 69.0, 0.0), now=10.0) == 6


def test_equal_ranks_go_to_the_earlier_submission() -> None:
    running = RunningJobs()
    first, second = state("first", 1.0), state("second", 2.0)
    running.put(second, (0.0, 10.0, 0.0), 0.0, 1, now=0.0)
    assert running.gpus_behind(first, (0.0, 10.0, 0.0), now=0.0) == 1
    running.put(first, (0.0, 10.0, 0.0), 0.0, 1, now=0.0)
    assert running.gpus_behind(second, (0.0, 10.0, 0.0), now=0.0) == 0


def test_a_job_is_never_behind_itself() -> None:
    running = RunningJobs()
    own, other = state("own"), state("other")
    running.put(own, (0.0, 100.0, 0.0), 0.0, 3, now=0.0)
    running.put(other, (0.0, 200.0, 0.0), 0.0, 2, now=0.0)
    assert running.gpus_behind(own, (0.0, 90.0, 0.0), now=0.0) == 2
    assert names(running.jobs_behind(own, (0.0, 90.0, 0.0), now=0.0)) == ["other"]


def test_removed_or_replaced_job_leaves_no_rank() -> None:
    running = RunningJobs()
    one, new = state("one"), state("new")
    for now in range(5):
        running.put(one, (0.0, 100.0 - now, 0.0), float(now), now + 1, now=float(now))
    assert (len(running), running.keys()) == (1, ["default/one"])
    running.remove("default/one")
    running.remove("default/one")
    assert running.gpus_behind(new, (0.0, 0.0, 0.0), now=9.0) == 0


def test_job_with_windows_at_two_sites_ranks_at_both() -> None:
    running = RunningJobsBySite()
    one, new = state("one"), state("new")
    running.put(one, (0.0, 100.0, 0.0), 1.0, {"a": 2, "b": 3}, now=0.0)
    assert [running.gpus_behind(new, (0.0, 50.0, 0.0), site, 0.0) for site in ("a", "b", "c", "")] == [2, 3, 0, 5]
    assert list(running.jobs_behind(new, (0.0, 50.0, 0.0), "", 0.0)) == [one]
    running.put(one, (0.0, 100.0, 0.0), 1.0, {"b": 1}, now=0.0)
    assert [running.gpus_behind(new, (0.0, 50.0, 0.0), site, 0.0) for site in ("a", "b")] == [0, 1]
    running.remove("default/one")
    assert running.gpus_behind(new, (0.0, 50.0, 0.0), "", 0.0) == 0
    assert running.keys() == []
