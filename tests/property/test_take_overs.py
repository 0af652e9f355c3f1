"""A scheduler that takes over plans as its predecessor did: the state outlives the process, whatever ties there are."""

import asyncio

from hypothesis import example, given, settings
from hypothesis import strategies as st

from support.controller_course import Course, plans, submitted, successor
from support.live_controller import reported, taken_over

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


async def both(arrivals: list[tuple[int, int, int]]) -> tuple[dict[str, object], dict[str, object]]:
    course = Course(await taken_over(policy="chunk"))
    for number, (gap, chunks, seconds) in enumerate(arrivals):
        course.play(course.now + gap)
        job = submitted(number, chunks, seconds, course.now)
        reported(course.controller, "jobs", job.key, job)
    course.play(course.now)
    return plans(course.controller.planner, course.now), plans(successor(course), course.now)


@settings(max_examples=30, deadline=None)
@given(ARRIVALS)
@example([(120, 1, 600), (60, 1, 1200), (60, 1, 1200), (30, 4, 60), (120, 3, 60)])  # no worker is stopped that was not
@example(CHEAPER)
@example(CHEAPER_LATER)
def test_who_takes_over_plans_what_the_one_before_has_planned(arrivals: list[tuple[int, int, int]]) -> None:
    first, second = asyncio.run(both(arrivals))
    assert first == second
