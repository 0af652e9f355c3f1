"""The check of a chaos round counts the pods that are sent to a node, in histories made by hand."""

from chaos.checks.node_visit import Visits, check_visits
from support.history_builder import History


def test_pod_counts_once_when_it_is_bound() -> None:
    history = History()
    for attempt in (1, 2):
        history.pod(attempt, "0", node=None, phase="Pending")
        history.pod(attempt, "0")
        history.pod(attempt, "0", phase="Failed")
    last = history.changes[-1].revision
    assert list(check_visits(history.changes, [Visits("n", 2, 0, last), Visits("other", 0, 0, last)])) == []
    (found,) = check_visits(history.changes, [Visits("n", 1, 0, last)])
    assert found == "2 pods, at most 1, are bound to n, which cannot run them"


def test_pod_outside_of_the_revisions_does_not_count() -> None:
    history = History()
    history.pod(1, "0")
    assert list(check_visits(history.changes, [Visits("n", 0, 0, 1), Visits("n", 0, 9, 10)])) == []


def test_limit_of_each_member_counts_pods_by_role_and_index() -> None:
    history = History(members=1, chief=True)
    for attempt in (1, 2):
        history.pod(attempt, "0")
        history.pod(attempt, role="chief")
    last = history.changes[-1].revision
    assert list(check_visits(history.changes, [Visits("n", 2, 0, last, of_each_member=True)])) == []
    found = list(check_visits(history.changes, [Visits("n", 1, 0, last, of_each_member=True)]))
    assert found == [
        f"2 pods of cats-{role}-0, at most 1, are bound to n, which cannot run them" for role in ("worker", "chief")
    ]
