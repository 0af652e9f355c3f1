"""Barriers of a parameter server, in virtual time."""

from math import inf

from hypothesis import given, settings
from hypothesis import strategies as st

from tranche_worker import Barrier, StalenessBound


def opened(count: int, *arguments: float) -> Barrier:
    """Return a barrier that this number of workers has joined at time 0."""
    enough, *others = arguments
    barrier = Barrier(int(enough), *others)
    for worker in range(count):
        barrier.contact(worker, 0.0)
    return barrier


def pushed(barrier: Barrier, *workers: int, now: float = 1.0) -> bool:
    """Push for these workers, and return whether the round may close."""
    for worker in workers:
        barrier.push(worker, now)
    return barrier.may_close(now)


def test_a_round_closes_after_k_of_n_pushes() -> None:
    barrier = opened(4, 3)
    assert not pushed(barrier, 0, 1)
    assert not pushed(barrier, 1), "a repeated push counts once"
    assert pushed(barrier, 2)
    barrier.close()
    assert barrier.round == 1
    assert not barrier.may_close(1.0)
    assert not pushed(barrier, 3, 0), "the late one counts in this round"
    assert pushed(barrier, 1)


def test_staleness_of_zero_waits_for_all() -> None:
    barrier = opened(3, 1, 0)
    assert not pushed(barrier, 0, 1)
    assert pushed(barrier, 2)


def test_a_worker_may_miss_as_many_rounds_as_the_staleness() -> None:
    barrier = opened(3, 2, 2)
    for _ in range(2):
        assert pushed(barrier, 0, 1)
        barrier.close()
    assert not pushed(barrier, 0, 1), "worker 2 has missed two rounds"
    assert pushed(barrier, 2)
    barrier.close()
    assert pushed(barrier, 0, 1)


def test_fewer_workers_than_k_are_enough_if_all_push() -> None:
    barrier = opened(3, 3)
    barrier.leave(2)
    assert pushed(barrier, 0, 1)


def test_a_worker_without_contact_delays_others_only_once() -> None:
    barrier = opened(2, 2, 0, 10)
    assert not pushed(barrier, 0, now=5.0)
    assert not barrier.may_close(10.0)
    assert barrier.may_close(10.5)
    barrier.close()
    assert pushed(barrier, 0, now=11.0)


def test_a_bound_keeps_workers_within_s_of_the_slowest() -> None:
    bound = StalenessBound(2)
    for worker in (0, 1):
        bound.contact(worker, 0.0)
    starts = 0
    while bound.may_start(0, 1.0):
        starts += 1
        bound.trained(0, 1.0)
    assert starts == 3, "the slowest is at 0, so batches 1 to 3 may start"
    bound.trained(1, 2.0)
    assert bound.may_start(0, 2.0)
    bound.trained(0, 2.0)
    assert not bound.may_start(0, 2.0)
    bound.leave(1)
    assert bound.may_start(0, 2.0)


def test_a_new_worker_starts_beside_the_slowest() -> None:
    bound = StalenessBound(1)
    bound.trained(0, 0.0, 50)
    bound.contact(1, 0.0)
    bound.trained(1, 1.0)
    assert bound.may_start(0, 1.0)
    assert bound.may_start(1, 1.0)


@settings(max_examples=100)
@given(st.integers(1, 6), st.integers(1, 8), st.sampled_from([0, 1, 3, inf]), st.lists(st.integers(0, 5), max_size=60))
def test_round_has_k_pushes_and_no_worker_misses_more_than_s(
    count: int, enough: int, staleness: float, order: list[int]
) -> None:
    barrier, pushed, missed = Barrier(enough, staleness), set[int](), [0] * count
    for worker in range(count):
        barrier.contact(worker, 0.0)
    for worker in (one % count for one in order):
        barrier.push(worker, 1.0)
        pushed.add(worker)
        late = any(missed[one] >= staleness for one in range(count) if one not in pushed)
        assert barrier.may_close(1.0) is (len(pushed) >= min(enough, count) and not late)
        if barrier.may_close(1.0):
            barrier.close()
            missed = [0 if one in pushed else missed[one] + 1 for one in range(count)]
            assert all(rounds <= staleness for rounds in missed)
            pushed.clear()


@settings(max_examples=100)
@given(st.integers(1, 5), st.integers(0, 4), st.lists(st.integers(0, 4), max_size=80))
def test_no_worker_is_more_than_s_plus_one_batches_ahead(count: int, staleness: int, order: list[int]) -> None:
    bound, trained = StalenessBound(staleness), [0] * count
    for worker in range(count):
        bound.contact(worker, 0.0)
    for worker in (one % count for one in order):
        if bound.may_start(worker, 1.0):
            bound.trained(worker, 1.0)
            trained[worker] += 1
        assert max(trained) - min(trained) <= staleness + 1
        assert bound.may_start(trained.index(min(trained)), 1.0), "the slowest may always start"
