"""The checks of a chaos round find gangs that are planned, bound or ended in part, in histories made by hand."""

import pytest

from chaos.checks.history import check
from support.history_builder import Entry, History

OPEN, CLOSING = "Open", "Closing"
MEMBERS = ((1, [0]), (2, [1]))
SERVER: Entry = (3, OPEN)
CHIEF: Entry = (4, OPEN)


@pytest.fixture
def history() -> History:
    """Two members, a parameter server and a chief, planned."""
    made = History(members=2, servers=1, chief=True)
    made.job(*MEMBERS, servers=[SERVER], chief=CHIEF, revision=2)
    return made


def create(history: History, node: str | None) -> None:
    phase = "Running" if node else "Pending"
    for attempt, member in ((1, "0"), (2, "1")):
        history.pod(attempt, member, node=node, phase=phase)
    history.pod(3, role="ps", gpus=0, node=node, phase=phase)
    history.pod(4, role="chief", gpus=0, node=node, phase=phase)


def problem(history: History) -> str:
    (found,) = check(history.changes)
    return found


def test_gang_that_starts_whole_and_ends_with_chief_has_no_fault(history: History) -> None:
    create(history, None)
    create(history, "n")
    history.pod(4, role="chief", gpus=0, phase="Succeeded")
    history.job(done="0-1", revision=3)
    history.pod(4, role="chief", gpus=0, phase="Succeeded", held=False)
    for attempt, member in ((1, "0"), (2, "1")):
        history.pod(attempt, member, phase="Failed", held=False)
    assert check(history.changes) == []


def test_a_gang_that_has_lost_its_chief_may_begin_again(history: History) -> None:
    create(history, None)
    create(history, "n")
    history.pod(1, "0", phase="Succeeded")
    history.job((2, [1]), servers=[SERVER], chief=CHIEF, done="0", revision=3)
    history.pod(4, role="chief", gpus=0, phase="Failed")
    history.job((2, [1]), servers=[(3, CLOSING)], state=CLOSING, revision=4)
    history.job(revision=5)
    history.job((5, [0]), (6, [1]), servers=[(7, OPEN)], chief=(8, OPEN), revision=6)
    assert check(history.changes) == []


@pytest.mark.parametrize(
    ("windows", "servers", "chief"),
    [
        (MEMBERS[:1], [SERVER], CHIEF),
        (MEMBERS, [], CHIEF),
        (MEMBERS, [(3, CLOSING)], CHIEF),
        (MEMBERS, [SERVER], None),
        ((), [], CHIEF),
    ],
)
def test_a_gang_that_is_planned_in_part_is_found(
    windows: tuple[tuple[int, list[int]], ...], servers: list[Entry], chief: Entry | None
) -> None:
    history = History(members=2, servers=1, chief=True)
    history.job(*windows, servers=servers, chief=chief, revision=2)
    assert "planned in part" in problem(history)


@pytest.mark.parametrize("missing", ["worker", "ps", "chief"])
def test_gated_pod_bound_before_the_others_exist_is_found(history: History, missing: str) -> None:
    pods = [(1, "0", "worker"), (2, "1", "worker"), (3, "", "ps"), (4, "", "chief")]
    there = [pod for pod in pods if pod[2] != missing]
    for attempt, member, role in there:
        history.pod(attempt, member, role=role, node=None, gpus=0, gated=True)
    attempt, member, role = there[0]
    history.pod(attempt, member, role=role, gpus=0)
    assert "is bound, and attempts" in problem(history)


@pytest.mark.parametrize(("created", "late"), [("2026-01-01T00:01:00Z", False), ("2026-01-01T00:01:01Z", True)])
def test_pod_created_a_minute_after_success_of_peer_is_found(history: History, created: str, late: bool) -> None:
    history.pod(4, role="chief", gpus=0, node=None, phase="Pending")
    history.pod(4, role="chief", gpus=0)
    assert check(history.changes) == [], "without a gate, a pod may be bound before the others exist"
    history.pod(1, "0", phase="Succeeded")
    history.pod(3, role="ps", gpus=0, created=created)
    found = check(history.changes)
    assert [one.partition(" was ")[2] for one in found] == [
        "created 61 s after a pod of its gang that has succeeded without it"
    ] * late


def test_gang_restarted_after_chief_success_is_found(
    history: History,
) -> None:
    create(history, None)
    history.pod(4, role="chief", gpus=0, phase="Succeeded")
    history.job(*MEMBERS, servers=[SERVER], chief=CHIEF, revision=3)
    history.job(revision=4)
    assert check(history.changes) == []
    history.job((5, [0]), (6, [1]), servers=[(7, OPEN)], chief=(8, OPEN), revision=5)
    assert "starts attempts [5, 6, 7, 8], and its chief has succeeded in attempt 4" in problem(history)


def test_a_chief_that_is_released_before_it_is_counted_is_found(history: History) -> None:
    create(history, None)
    history.pod(4, role="chief", gpus=0, phase="Succeeded")
    history.pod(4, role="chief", gpus=0, phase="Succeeded", held=False)
    assert len(found := check(history.changes)) == 2
    assert all("not in the ledger" in one for one in found), "both members"


@pytest.mark.parametrize("phase", ["Running", "Failed"])
def test_done_members_before_chief_success_counts_are_found(history: History, phase: str) -> None:
    create(history, None)
    history.pod(4, role="chief", gpus=0, phase=phase)
    history.job(done="0-1", revision=3)
    assert len(found := check(history.changes)) == 2
    assert all("no planned worker reported so" in one for one in found), "both members"


def test_success_of_unplanned_chief_does_not_count(history: History) -> None:
    create(history, None)
    history.job(revision=3)
    history.pod(4, role="chief", gpus=0, phase="Succeeded")
    assert check(history.changes) == []
    history.job(done="0-1", revision=4)
    assert "no planned worker reported so" in check(history.changes)[0]
