"""A scheduler that takes over plans as its predecessor did: the state outlives the process, whatever ties there are."""

import asyncio

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from support.controller_course import DISTRIBUTING, Course, gang_of, plans, submitted, successor, valued
from support.live_controller import reported, taken_over
from tranche.live.planner_config import PlannerConfig
from tranche.planner import Planner
from tranche.policies.queue.selector import Selector

ARRIVALS = st.lists(
    st.tuples(st.sampled_from((30, 60, 120)), st.integers(1, 4), st.sampled_from((60, 120, 600, 1200))),
    min_size=1,
    max_size=25,
)
"""Seconds since the job before, chunks, and seconds of the whole job: there are many ties."""

CHEAPER = [(30, 4, 60), (30, 2, 120), (30, 2, 120), (30, 4, 1200), (30, 2, 60), (30, 1, 60), (30, 1, 1200)]
"""The last job fails to stop a worker that has not started; the worker starts earlier than estimated."""
CHEAPER_LATER = [
    *[(30, 2, 600), (30, 2, 600), (30, 2, 60), (30, 4, 600), (60, 2, 60), (60, 3, 600), (120, 1, 60)],
    *[(30, 1, 60), (30, 1, 60), (60, 1, 60), (60, 1, 60), (60, 1, 60), (60, 1, 600)],
]
"""The same with a worker of a job that was stopped before."""


PREEMPTED = [
    *[(30, 2, 600), (120, 4, 60), (60, 1, 600), (120, 4, 60), (120, 1, 120), (120, 3, 120), (120, 3, 1200)],
    *[(120, 1, 60), (120, 3, 1200), (60, 2, 120), (120, 4, 60), (30, 4, 60), (120, 2, 60), (120, 2, 60)],
    *[(120, 2, 1200), (120, 4, 1200)],
]
"""A gang was preempted less than a quantum before the take-over."""
BY_LEVEL = ("consolidate", "dally-like", "dally-like:timers=100/50", "no-wait")
LEVELS = (300e9, 100e9, 10e9, 1e9)
"""Bit/s within a node, a rack and a site, and on the WAN: with `GRADIENTS`, a pair takes 97 s longer on two nodes."""
GRADIENTS = "125G"


async def both(
    arrivals: list[tuple[int, int, int]], config: PlannerConfig | None = None, *, has_utilities: bool = False
) -> tuple[dict[str, object], dict[str, object]]:
    config = config or PlannerConfig("chunk")
    course = Course(await taken_over(config=config))
    for number, (gap, chunks, seconds) in enumerate(arrivals):
        course.play(course.now + gap)
        job = submitted(number, chunks, seconds, course.now)
        if config.level_bandwidths and number % 4:
            job = gang_of(job, GRADIENTS)
        if has_utilities:
            job = valued(number, job)
        reported(course.controller, "jobs", job.key, job)
    course.play(course.now)
    return plans(course.controller.planner, course.now), plans(successor(course, config), course.now)


@settings(max_examples=30)
@given(ARRIVALS)
@example([(120, 1, 600), (60, 1, 1200), (60, 1, 1200), (30, 4, 60), (120, 3, 60)])  # no worker is stopped that was not
@example(CHEAPER)
@example(CHEAPER_LATER)
def test_who_takes_over_plans_what_the_one_before_has_planned(arrivals: list[tuple[int, int, int]]) -> None:
    first, second = asyncio.run(both(arrivals))
    assert first == second


@pytest.mark.parametrize("policy", BY_LEVEL)
@settings(max_examples=5, phases=(Phase.explicit, Phase.generate))
@given(arrivals=ARRIVALS)
@example(arrivals=PREEMPTED)
def test_take_over_keeps_what_is_known_about_gangs(policy: str, arrivals: list[tuple[int, int, int]]) -> None:
    first, second = asyncio.run(both(arrivals, PlannerConfig(policy, level_bandwidths=LEVELS)))
    assert first == second


@pytest.mark.parametrize("policy", DISTRIBUTING)
@settings(max_examples=5, phases=(Phase.explicit, Phase.generate))
@given(arrivals=ARRIVALS)
@example(arrivals=PREEMPTED)
def test_take_over_keeps_grants_and_reserved_cells(policy: str, arrivals: list[tuple[int, int, int]]) -> None:
    first, second = asyncio.run(both(arrivals, PlannerConfig(policy), has_utilities=True))
    assert first == second


@settings(max_examples=8, phases=(Phase.explicit, Phase.generate))
@given(
    st.lists(
        st.tuples(st.sampled_from((30, 60)), st.integers(1, 4), st.sampled_from((60, 120, 600))),
        min_size=15,
        max_size=18,
    )
)
def test_take_over_keeps_the_choice_of_the_selector(arrivals: list[tuple[int, int, int]]) -> None:
    async def courses() -> list[Planner]:
        config = PlannerConfig("selector:members=fifo-skip+srsf:margin=0")
        course = Course(await taken_over(config=config))
        for number, (gap, chunks, seconds) in enumerate(arrivals):
            course.play(course.now + gap)
            job = submitted(number, chunks, seconds, course.now)
            reported(course.controller, "jobs", job.key, job)
        course.play(course.now + 6000)
        return [course.controller.planner, successor(course, config)]

    def choice(planner: Planner) -> int:
        assert isinstance(planner.policy, Selector)
        return planner.policy.rank_epoch(planner.cluster)

    first, second = asyncio.run(courses())
    assert len(first.cluster.history) == len(second.cluster.history) > 10
    assert choice(first) == choice(second)
