"""The queue as a state machine, and its runner on an event loop whose clock jumps instead of sleeping."""

import asyncio
import logging
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.virtual_time_loop import JumpingLoop, run
from tranche_operator.queue.work_queue import (
    EVENT_DELAY_AFTER_FAILURE_SECONDS,
    LONGEST_BACKOFF_SECONDS,
    LONGEST_RETRY_AFTER_SECONDS,
    SLOW_PER_NAMESPACE,
    SPARE_ENTRIES,
    KeyedQueue,
    Runner,
)


class TestKeyedQueue:
    def test_a_burst_of_news_is_one_run(self) -> None:
        queue = KeyedQueue(settle_seconds=0.02)
        for moment in (0.0, 0.005, 0.01):
            queue.add("a", moment)
        assert queue.take(0.01) is None
        assert queue.take(0.02) == "a"
        queue.done("a", 0.03)
        assert queue.take(100.0) is None
        assert len(queue) == 0

    def test_news_during_a_run_make_it_run_once_more(self) -> None:
        queue = KeyedQueue()
        queue.add("a", 0.0)
        assert queue.take(0.0) == "a"
        queue.add("a", 1.0)
        queue.add("a", 2.0)
        assert queue.take(3.0) is None, "it runs already"
        queue.done("a", 4.0)
        assert queue.take(4.0) == "a"
        queue.done("a", 5.0)
        assert queue.next_due() is None

    def test_a_run_that_asks_for_it_is_repeated_later(self) -> None:
        queue = KeyedQueue()
        queue.add("a", 0.0)
        queue.take(0.0)
        queue.done("a", 1.0, again_in=30.0)
        assert queue.next_due() == 31.0
        assert queue.take(30.9) is None
        assert queue.take(31.0) == "a"

    def test_news_come_before_a_later_wish(self) -> None:
        queue = KeyedQueue()
        queue.add("a", 0.0, delay=60.0)
        queue.add("a", 1.0)
        assert queue.take(1.0) == "a"
        queue.done("a", 1.0)
        assert queue.take(60.0) is None, "the earlier run has served the wish"

    def test_queue_backs_off_up_to_a_limit_and_resets_on_success(self) -> None:
        queue, now, delays = KeyedQueue(Random(1)), 0.0, []
        queue.add("a", now)
        for _ in range(12):
            assert queue.take(now) == "a"
            delays.append(queue.failed("a", now))
            now += delays[-1]
        assert 0.25 <= delays[0] <= 0.5
        assert all(LONGEST_BACKOFF_SECONDS / 2 <= delay <= LONGEST_BACKOFF_SECONDS for delay in delays[8:])
        assert queue.take(now) == "a"
        queue.done("a", now)
        queue.add("a", now)
        queue.take(now)
        assert queue.failed("a", now) <= 0.5

    def test_news_shorten_a_long_back_off_but_not_to_nothing(self) -> None:
        queue, now = KeyedQueue(Random(1)), 0.0
        queue.add("a", now)
        for _ in range(8):
            queue.take(now)
            now += queue.failed("a", now)
        queue.take(now)
        queue.failed("a", now)
        queue.add("a", now + 0.5)
        assert queue.next_due() == pytest.approx(now + 0.5 + EVENT_DELAY_AFTER_FAILURE_SECONDS)

    def test_news_do_not_shorten_what_the_api_server_asks_for(self) -> None:
        queue = KeyedQueue(Random(1))
        queue.add("a", 0.0)
        assert queue.take(0.0) == "a"
        assert queue.failed("a", 0.0, retry_after=20.0) == 20.0
        queue.add("a", 1.0)
        assert queue.next_due() == 20.0

    def test_wishes_that_events_overtake_do_not_pile_up(self) -> None:
        """A job with a deadline asks at each run for one at its deadline, which may be weeks away."""
        queue, keys = KeyedQueue(), [f"n/{number}" for number in range(10)]
        for cycle in range(100):
            for key in keys:
                queue.add(key, float(cycle))
                assert queue.take(float(cycle)) == key
                queue.done(key, float(cycle), again_in=1e6 + cycle)
        assert len(queue._heap) <= 2 * len(keys) + SPARE_ENTRIES
        assert sorted(queue.take(2e6) or "" for _ in keys) == keys
        assert queue.take(2e6) is None

    def test_an_endless_retry_after_is_bounded(self) -> None:
        queue = KeyedQueue(Random(1))
        queue.add("a", 0.0)
        queue.take(0.0)
        assert queue.failed("a", 0.0, retry_after=1e9) == LONGEST_RETRY_AFTER_SECONDS

    def test_news_during_a_run_that_fails_are_not_lost(self) -> None:
        queue = KeyedQueue(Random(1))
        queue.add("a", 0.0)
        queue.take(0.0)
        queue.add("a", 0.1)
        assert queue.failed("a", 0.2) <= EVENT_DELAY_AFTER_FAILURE_SECONDS
        assert queue.next_due() is not None

    def test_the_key_that_is_due_longest_comes_first(self) -> None:
        queue = KeyedQueue()
        queue.add("b", 0.0, delay=2.0)
        queue.add("a", 0.0, delay=1.0)
        assert [queue.take(5.0), queue.take(5.0), queue.take(5.0)] == ["a", "b", None]

    @given(st.lists(st.tuples(st.sampled_from(["add", "take", "done", "fail"]), st.sampled_from("abc")), max_size=80))
    def test_no_news_are_lost_and_no_key_runs_twice_at_a_time(self, steps: list[tuple[str, str]]) -> None:
        queue, running, dirty, now = KeyedQueue(Random(0)), set[str](), set[str](), 0.0
        for step, key in steps:
            now += 0.1
            if step == "add":
                queue.add(key, now)
                dirty.add(key)
            elif step == "take":
                taken = queue.take(now)
                assert taken not in running
                if taken is not None:
                    running.add(taken)
                    dirty.discard(taken)
            elif key in running:
                running.discard(key)
                if step == "done":
                    queue.done(key, now)
                else:
                    queue.failed(key, now)
                    dirty.add(key)
        while running:
            queue.done(running.pop(), now)
        while (due := queue.next_due()) is not None:
            now = max(now, due)
            key_taken = queue.take(now)
            assert key_taken is not None
            dirty.discard(key_taken)
            queue.done(key_taken, now)
        assert not dirty
        assert len(queue) == 0


async def serve_for(runner: Runner, seconds: float) -> None:
    serving = asyncio.ensure_future(runner.serve())
    await asyncio.sleep(seconds)
    serving.cancel()
    await asyncio.wait([serving])


def slow_runner(loop: JumpingLoop, slow: tuple[str, ...]) -> tuple[dict[str, float], Runner]:
    """A runner of 20 keys at a time, whose runs of keys with these beginnings take 10 s, and when each key began."""
    began: dict[str, float] = {}

    async def work(key: str) -> None:
        began[key] = loop.time()
        await asyncio.sleep(10.0 if key.startswith(slow) else 0.01)

    return began, Runner(work, clock=loop.time, parallel=20)


class TestRunner:
    def test_one_run_at_a_time_per_key_and_few_in_all(self) -> None:
        async def main(loop: JumpingLoop) -> None:
            at_once: list[str] = []
            most = 0
            runs: list[str] = []

            async def work(key: str) -> None:
                nonlocal most
                assert key not in at_once
                at_once.append(key)
                most = max(most, len(at_once))
                await asyncio.sleep(1.0)
                at_once.remove(key)
                runs.append(key)

            runner = Runner(work, clock=loop.time, parallel=2)
            for key in ("a", "b", "c", "d"):
                runner.add(key)
            loop.call_later(0.5, runner.add, "a")
            await serve_for(runner, 10.0)
            assert most == 2
            assert sorted(runs) == ["a", "a", "b", "c", "d"]

        run(main)

    def test_a_run_is_repeated_when_it_wants_to_be(self) -> None:
        async def main(loop: JumpingLoop) -> None:
            moments: list[float] = []

            async def work(key: str) -> float | None:
                moments.append(loop.time())
                return 60.0 if len(moments) < 3 else None

            runner = Runner(work, clock=loop.time, parallel=1)
            runner.add("a")
            await serve_for(runner, 1000.0)
            assert moments == pytest.approx([0.0, 60.0, 120.0])
            assert runner.waiting == 0

        run(main)

    def test_a_failed_run_is_logged_and_repeated(self, caplog: pytest.LogCaptureFixture) -> None:
        async def main(loop: JumpingLoop) -> None:
            moments: list[float] = []

            async def work(key: str) -> None:
                moments.append(loop.time())
                if len(moments) == 1:
                    raise OSError("no route\nto host")

            runner = Runner(work, clock=loop.time, parallel=1, expected=(OSError,), random=Random(3))
            runner.add("lab/cats")
            await serve_for(runner, 100.0)
            assert len(moments) == 2
            assert 0.25 <= moments[1] <= 0.5

        with caplog.at_level(logging.WARNING):
            run(main)
        (record,) = caplog.records
        assert record.getMessage().startswith("lab/cats: reconcile failed, retrying in ")
        assert record.getMessage().endswith(": no route to host")
        assert vars(record)["job"] == "lab/cats"
        assert not record.exc_info

    def test_unexpected_error_is_logged_with_traceback(self, caplog: pytest.LogCaptureFixture) -> None:
        async def main(loop: JumpingLoop) -> None:
            async def work(key: str) -> None:
                raise KeyError("spec")

            runner = Runner(work, clock=loop.time, parallel=1, expected=(OSError,))
            runner.add("a")
            await serve_for(runner, 0.1)

        run(main)
        assert caplog.records[0].exc_info

    def test_slow_namespace_leaves_places_for_the_others(self) -> None:
        async def main(loop: JumpingLoop) -> None:
            began, runner = slow_runner(loop, slow=("a/",))
            for number in range(100):
                runner.add(f"a/{number}")
            for delay in (1.0, 25.0):
                loop.call_later(delay, runner.add, f"b/{delay}")
            await serve_for(runner, 29.0)
            assert [began["b/1.0"], began["b/25.0"]] == pytest.approx([1.0, 25.0])
            assert len(began) == 2 + 16 + 2 * SLOW_PER_NAMESPACE  # places of a: at first 4 of 5, then few

        run(main)

    def test_many_slow_namespaces_leave_places_for_the_others(self) -> None:
        async def main(loop: JumpingLoop) -> None:
            began, runner = slow_runner(loop, slow=("a", "c"))
            for number in range(200):
                runner.add(f"{'ac'[number % 2]}{number % 10}/{number}")
            loop.call_later(1.0, runner.add, "b/first")
            loop.call_later(25.0, runner.add, "b/later")
            await serve_for(runner, 30.0)
            assert [began["b/first"], began["b/later"]] == pytest.approx([10.0, 25.0])

        run(main)

    def test_namespace_that_is_fast_again_has_all_its_places(self) -> None:
        async def main(loop: JumpingLoop) -> None:
            began, runner = slow_runner(loop, slow=("a/slow",))
            runner.add("a/slow")
            for number in range(100):
                loop.call_later(11.0, runner.add, f"a/{number}")
            await serve_for(runner, 12.0)
            assert len(began) == 101

        run(main)

    def test_news_of_a_key_that_waits_for_a_place_are_one_run(self) -> None:
        async def main(loop: JumpingLoop) -> None:
            runs: list[str] = []

            async def work(key: str) -> None:
                runs.append(key)
                await asyncio.sleep(1.0)

            runner = Runner(work, clock=loop.time, parallel=1)
            for key in ("a/1", "a/2"):
                runner.add(key)
            loop.call_later(0.5, runner.add, "a/2")
            await serve_for(runner, 10.0)
            assert runs == ["a/1", "a/2"]
            assert runner.waiting == 0

        run(main)

    def test_stopping_ends_the_runs_under_way(self) -> None:
        async def main(loop: JumpingLoop) -> None:
            ended: list[str] = []

            async def work(key: str) -> None:
                try:
                    await asyncio.sleep(1000.0)
                finally:
                    ended.append(key)

            runner = Runner(work, clock=loop.time, parallel=4)
            runner.add("a")
            runner.add("b")
            await serve_for(runner, 1.0)
            assert sorted(ended) == ["a", "b"]
            assert loop.time() == pytest.approx(1.0)

        run(main)
