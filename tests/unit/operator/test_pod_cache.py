"""The operator's store of pods: the newest version wins, and a deleted pod stays deleted."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tranche.kube.api.core_types import Pod
from tranche_operator.reconcile.observed import PodView
from tranche_operator.watch.pod_cache import GONE_SECONDS, PodCache
from tranche_operator.watch.pod_decoder import job_key, view

KEY = "n/j"
POD: dict[str, Any] = {
    "metadata": {"uid": "p", "name": "j-worker-0-1", "namespace": "n", "resourceVersion": "7", "finalizers": ["f"]},
    "spec": {"schedulingGates": [{"name": "tranche.dev/gang"}]},
    "status": {"phase": "Pending"},
}
POD["metadata"]["labels"] = {"tranche.dev/job": "j", "app.kubernetes.io/managed-by": "tranche"}


def seen(**changes: Any) -> PodView:
    """The pod as the watch shows it, a revision later for each change."""
    parts = {part: {**POD[part], **changes.get(part, {})} for part in POD}
    parts["metadata"]["resourceVersion"] = str(changes.get("version", 7 + len(changes)))
    return view(msgspec.convert(parts, Pod))


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("change", "news"),
    [
        ({"metadata": {"annotations": {"a": "b"}}}, False),
        ({"spec": {"nodeName": "n1"}}, False),
        ({"status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]}}, False),
        ({"spec": {"schedulingGates": []}}, True),
        ({"status": {"phase": "Running"}}, True),
        ({"metadata": {"finalizers": []}}, True),
        ({"metadata": {"labels": {"tranche.dev/job": "j"}}}, True),
        ({"metadata": {"deletionTimestamp": "2026-11-21T12:00:00Z"}}, True),
    ],
)
def test_phase_gates_and_finalizers_of_pod_are_news_but_not_node(change: dict[str, Any], news: bool) -> None:
    pods = PodCache()
    assert pods.note(KEY, seen())
    assert pods.note(KEY, seen(**change)) is news
    assert pods.of(KEY) == (seen(**change),)


def test_a_pod_is_filed_under_the_job_of_its_label() -> None:
    assert job_key(msgspec.convert(POD, Pod).metadata) == KEY
    pods = PodCache()
    assert pods.note(KEY, seen())
    assert pods.note("n/other", seen(version=8)), "somebody has changed the label: that is news for both"
    assert (pods.of(KEY), pods.of("n/other")) == ((), (seen(),))


def test_response_older_than_watch_is_ignored() -> None:
    pods = PodCache()
    runs = seen(status={"phase": "Running"}, version=9)
    assert pods.note(KEY, runs)
    assert not pods.note(KEY, seen(version=8))
    assert not pods.note(KEY, replace(runs, phase="Failed")), "the same version"
    assert pods.of(KEY) == (runs,)


def test_expected_end_of_pod_is_no_news_but_its_deletion_is() -> None:
    bound, ending = {"nodeName": "n1"}, {"deletionTimestamp": "2026-11-21T12:00:00Z"}
    pods = PodCache()
    pods.note(KEY, seen(spec=bound))
    pods.expect_end("p")
    pods.expect_end("unknown")
    assert [pod.terminating for pod in pods.of(KEY)] == [True]
    assert not pods.note(KEY, seen(spec=bound, metadata=ending))
    assert pods.drop("p")
    assert pods.of(KEY) == ()


def test_no_late_answer_and_no_list_brings_back_what_is_gone() -> None:
    clock = Clock()
    pods = PodCache(clock)
    pods.note(KEY, seen())
    pods.drop("p")
    assert not pods.note(KEY, seen(version=100)), "the answer to its release"
    pods.sync([(KEY, seen(version=98))], began=clock.now)
    assert pods.of(KEY) == ()
    clock.now += 1.0
    pods.sync([(KEY, seen(version=101))], began=clock.now - 0.5)
    assert len(pods.of(KEY)) == 1, "it had only lost its label, and a later list shows it"
    pods.drop("p")
    assert pods.note(KEY, seen(version=102), watched=True), "the same"
    assert pods.note(KEY, seen(version=103, status={"phase": "Running"})), "answers count again"
    pods.drop("p")
    clock.now += GONE_SECONDS + 1
    pods.sync([], began=clock.now)
    assert pods.note(KEY, seen(version=99)), "not remembered indefinitely"


def test_list_adds_unseen_pods_and_removes_missing_older_ones() -> None:
    clock = Clock()
    pods = PodCache(clock)
    assert not pods.complete
    pods.note(KEY, seen(version=50))
    began, clock.now = clock.now, 101.0
    late = replace(seen(), uid="late", name="late")
    pods.note(KEY, late)
    listed = replace(seen(), uid="told", name="told")
    pods.sync([(KEY, listed)], began)
    assert {pod.uid for pod in pods.of(KEY)} == {"late", "told"}
    assert pods.complete
    clock.now = 102.0
    pods.note(KEY, replace(listed, phase="Running", version=60))
    pods.sync([(KEY, listed), (KEY, late)], began=101.5)
    assert {pod.uid: pod.phase for pod in pods.of(KEY)} == {"late": "Pending", "told": "Running"}


def test_later_list_wins_even_with_older_versions() -> None:
    """The API server's data came from a backup."""
    clock = Clock()
    pods = PodCache(clock)
    pods.note(KEY, seen(version=500, status={"phase": "Running"}))
    clock.now += 1.0
    pods.sync([(KEY, seen(version=5))], began=clock.now)
    assert [pod.phase for pod in pods.of(KEY)] == ["Pending"]
