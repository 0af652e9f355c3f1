"""Actions of the operator for a job, case by case."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from support.operator_objects import ACCEPTED, NOW, observed, plan, pod, server, training_job, window
from support.reconcile_summary import created, decide, job_with, named, of_type
from tranche.kube.api import names
from tranche.kube.api.resources import SiteSpec, TrainingJob
from tranche.model import AttemptRecord
from tranche.model.attempt_record import pack
from tranche_operator.reconcile.actions import (
    ORDER,
    Action,
    CheckTemplate,
    CreatePod,
    CreateService,
    DeletePod,
    EmitEvent,
    EvictPod,
    ReleasePod,
    RequeueAfter,
    UngatePod,
    UpdateService,
    WithdrawPod,
    WriteStatus,
)
from tranche_operator.reconcile.event_rules import eviction_events, victim_events
from tranche_operator.reconcile.observed import (
    SERVICE_REJECTED,
    Observed,
    PodView,
    Rejection,
    ServiceState,
    TemplateVerdict,
)
from tranche_operator.reconcile.status import ConditionUpdate


class TestOpenWindows:
    def test_a_window_without_pod_creates_it(self) -> None:
        assert created(decide(observed(job_with(window(0, 1), window(1, 2))))) == ["cats-worker-0-1", "cats-worker-1-2"]

    def test_a_window_with_a_pod_needs_nothing(self) -> None:
        actions = decide(observed(job_with(window(0, 1)), pod(0, 1)))
        assert not created(actions)
        assert not named(EvictPod, actions)

    def test_servers_are_created_first_then_workers_and_the_service(self) -> None:
        job = job_with(window(2, 5), window(0, 6), servers=2, planned_servers=[server(1, 2), server(0, 1)])
        actions = decide(observed(job, service=ServiceState.ABSENT))
        kinds = [type(action) for action in actions if isinstance(action, CreatePod | CreateService)]
        assert kinds == [CreatePod] * 4 + [CreateService]
        assert created(actions) == ["cats-ps-0-1", "cats-ps-1-2", "cats-worker-0-6", "cats-worker-2-5"]

    def test_a_pod_that_is_over_and_not_yet_counted_is_left_alone(self) -> None:
        actions = decide(observed(job_with(window(0, 1)), pod(0, 1, phase="Succeeded")))
        assert not created(actions)
        assert not named(ReleasePod, actions)
        assert not named(DeletePod, actions)

    @pytest.mark.parametrize("over", [False, True])
    def test_pod_of_namesake_that_does_not_go_stands_for_none(self, over: bool) -> None:
        """Otherwise the window would hold its GPU without a pod, for as long as a finalizer keeps the old pod."""
        old = replace(pod(0, 1, owner="deleted", released=True, terminating=True, over=over), ends_by=NOW)
        seen = observed(job_with(window(0, 1)), old)
        assert created(decide(seen, after=14.0)) == []
        assert created(decide(seen, after=15.0)) == ["cats-worker-0-1"]

    def test_the_same_index_with_a_new_attempt_is_another_pod(self) -> None:
        actions = decide(observed(job_with(window(0, 2)), pod(0, 1)))
        assert named(EvictPod, actions) == ["cats-worker-0-1"]
        assert created(actions) == ["cats-worker-0-2"]

    def test_no_plan_creates_and_stops_nothing(self) -> None:
        actions = decide(observed(training_job(), pod(0, 1), pod(1, 2, phase="Failed")))
        assert {type(action) for action in actions} <= {WriteStatus, EmitEvent}

    def test_plan_for_another_generation_only_ends_closing_windows(self) -> None:
        """Otherwise a job whose specification changes all the time would keep the GPUs that others wait for."""
        job = training_job(generation=2, status={"plan": plan(window(0, 1), window(1, 2, "Closing"), generation=1)})
        actions = decide(observed(job, pod(1, 2), pod(2, 3), service=ServiceState.ABSENT))
        assert named(EvictPod, actions) == ["cats-worker-1-2"]
        assert {type(action) for action in actions} <= {EvictPod, WriteStatus, EmitEvent}

    def test_window_at_unlimited_site_requires_labels_of_the_site(self) -> None:
        job = job_with(window(0, 1, site="cloud", node=None, fallbacks=[]))
        (action,) = of_type(CreatePod, decide(observed(job, sites={"cloud": SiteSpec(node_selector={"zone": "c"})})))
        (term,) = action.manifest["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
            "nodeSelectorTerms"
        ]
        assert term == {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["c"]}]}

    @pytest.mark.parametrize(
        ("chunks", "text"),
        [([0], "chunk 0"), ([2, 0, 1, 7], "chunks 0-2,7"), ([*range(0, 400, 2)], "200 chunks")],
    )
    def test_a_new_pod_is_described_with_its_chunks(self, chunks: list[int], text: str) -> None:
        (action,) = of_type(CreatePod, decide(observed(job_with(window(0, 1, chunks=chunks)))))
        assert action.what == f"worker 0, attempt 1, at site edge-a, node edge-a-0: {text}"

    def test_a_window_of_a_site_that_is_gone_waits_and_says_so(self) -> None:
        actions = decide(observed(job_with(window(0, 1, site="cloud", node=None), window(1, 2))))
        assert created(actions) == ["cats-worker-1-2"]
        assert [event.reason for event in of_type(EmitEvent, actions) if event.type == "Warning"] == ["SiteMissing"]

    def test_pod_that_no_job_controls_does_not_stand_for_one(self) -> None:
        actions = decide(observed(job_with(window(0, 1), window(1, 2)), pod(0, 1, owner=None)))
        assert created(actions) == ["cats-worker-0-1", "cats-worker-1-2"], "the refusal names the pod"

    @pytest.mark.parametrize(
        ("state", "kinds"),
        [
            (ServiceState.OWN, set()),
            (ServiceState.OUTDATED, {UpdateService}),
            (ServiceState.ABSENT, {CreateService}),
            (ServiceState.STALE, {RequeueAfter}),
            (ServiceState.FOREIGN, {EmitEvent}),
        ],
    )
    def test_the_service_is_made_where_there_is_none(self, state: ServiceState, kinds: set[type]) -> None:
        job = job_with(window(0, 1), status={"phase": "Running"})
        actions = decide(observed(job, pod(0, 1), service=state))
        assert {type(action) for action in actions} - {WriteStatus} == kinds

    def test_a_job_of_one_pod_has_no_service(self) -> None:
        job = training_job(chunks=None, workers=1, status={"plan": plan(window(0, 1))})
        assert not [a for a in decide(observed(job, service=ServiceState.ABSENT)) if isinstance(a, CreateService)]

    def test_selector_of_an_earlier_release_is_replaced(self) -> None:
        job = job_with(window(0, 1))
        (update,) = of_type(UpdateService, decide(observed(job, pod(0, 1), service=ServiceState.OUTDATED)))
        assert update.former == {"tranche.dev/job": "cats"}
        assert update.selector == {"tranche.dev/job": "cats", "app.kubernetes.io/managed-by": "tranche"}

    @pytest.mark.parametrize(
        ("state", "pods"),
        [
            (ServiceState.ABSENT, []),
            (ServiceState.OWN, ["cats-worker-0-1"]),
            (ServiceState.OUTDATED, ["cats-worker-0-1"]),
        ],
    )
    def test_pods_of_a_gang_wait_for_a_refused_service(self, state: ServiceState, pods: list[str]) -> None:
        refusal = Rejection("cats-worker-0-1", SERVICE_REJECTED, "no", NOW)
        job = job_with(window(0, 1), chunks=None)
        assert created(decide(observed(job, service=state, rejection=refusal))) == pods


class TestSupersededPods:
    """Pods whose host name a later attempt has."""

    @pytest.mark.parametrize("role", ["worker", "ps"])
    def test_terminating_pod_is_withdrawn_before_the_creation(self, role: str) -> None:
        lost = pod(0, 1, role=role, terminating=True)
        windows, servers = ([window(0, 2)], []) if role == "worker" else ([], [server(0, 2)])
        actions = decide(observed(job_with(*windows, servers=1, planned_servers=servers), lost))
        steps = [action for action in actions if isinstance(action, WithdrawPod | CreatePod)]
        assert [type(step) for step in steps] == [WithdrawPod, CreatePod]
        assert steps[0] == WithdrawPod(lost.name, lost.uid)

    def test_pod_is_withdrawn_also_when_the_later_one_exists(self) -> None:
        actions = decide(observed(job_with(window(0, 3)), pod(0, 3), pod(0, 1, terminating=True)))
        assert named(WithdrawPod, actions) == ["cats-worker-0-1"]

    def test_withdrawn_pod_is_not_withdrawn_again(self) -> None:
        lost = replace(pod(0, 1, terminating=True), selected=False)
        assert not named(WithdrawPod, decide(observed(job_with(window(0, 2)), lost)))

    @pytest.mark.parametrize(
        "other",
        [
            pod(0, 1, phase="Failed"),
            pod(1, 1, terminating=True),
            pod(0, 1, role="ps", terminating=True),
            pod(0, 1, terminating=True, owner=None),
            pod(0, 3, terminating=True),
        ],
        ids=["ended", "other index", "other role", "no owner", "later attempt"],
    )
    def test_pod_that_no_attempt_supersedes_stays_selected(self, other: PodView) -> None:
        actions = decide(observed(job_with(window(0, 2)), other))
        assert created(actions) == ["cats-worker-0-2"]
        assert not named(WithdrawPod, actions)

    def test_pod_stays_selected_while_no_later_one_is_created(self) -> None:
        later = Rejection("cats-worker-0-2", "Forbidden", "no", NOW + timedelta(seconds=5))
        actions = decide(observed(job_with(window(0, 2)), pod(0, 1, terminating=True), rejection=later))
        assert not created(actions)
        assert not named(WithdrawPod, actions)

    def test_pod_of_a_deleted_namesake_is_withdrawn(self) -> None:
        old = pod(0, 7, owner="deleted", terminating=True)
        assert named(WithdrawPod, decide(observed(job_with(window(0, 1)), old))) == [old.name]

    def test_pod_of_a_job_without_service_stays_as_it_is(self) -> None:
        job = training_job(chunks=None, workers=1, status={"plan": plan(window(0, 2))})
        actions = decide(observed(job, pod(0, 1, terminating=True)))
        assert created(actions) == ["cats-worker-0-2"]
        assert not named(WithdrawPod, actions)


class TestClosing:
    def test_closing_window_evicts_its_pod_with_grace_and_uid(self) -> None:
        target = pod(0, 1)
        actions = decide(observed(job_with(window(0, 1, "Closing")), target))
        assert of_type(EvictPod, actions) == [
            EvictPod(target.name, target.uid, 45, "its window is closing", site="edge-a")
        ]

    def test_an_eviction_names_the_job_that_preempts(self) -> None:
        job = job_with(window(0, 1, "Closing", preemptedBy="lab/dogs"))
        (eviction,) = of_type(EvictPod, decide(observed(job, pod(0, 1))))
        assert eviction.preempted_by == "lab/dogs"

    def test_a_pod_that_is_no_longer_planned_is_evicted(self) -> None:
        actions = decide(observed(job_with(window(0, 1)), pod(0, 1), pod(1, 2), pod(0, 3, role="ps")))
        assert named(EvictPod, actions) == ["cats-worker-1-2", "cats-ps-0-3"]

    def test_a_pod_is_not_evicted_twice(self) -> None:
        job = job_with(window(0, 1, "Closing"))
        assert not named(EvictPod, decide(observed(job, pod(0, 1, terminating=True))))

    def test_a_closing_window_without_a_pod_needs_nothing(self) -> None:
        actions = decide(observed(job_with(window(0, 1, "Closing"))))
        assert not created(actions)
        assert not named(EvictPod, actions)

    def test_room_is_made_before_it_is_taken_and_what_is_over_waits(self) -> None:
        job = job_with(window(0, 4), window(1, 2, "Closing"))
        actions = decide(observed(job, pod(1, 2), pod(0, 1, phase="Failed"), service=ServiceState.ABSENT))
        ranks = [ORDER.index(type(action)) for action in actions]
        assert ranks == sorted(ranks)
        kinds = [type(action) for action in actions]
        assert kinds[:3] == [EvictPod, CreatePod, CreateService]
        assert kinds.index(ReleasePod) > kinds.index(WriteStatus)


class TestPreemptionEvents:
    def test_an_eviction_for_another_job_names_it(self) -> None:
        (event,) = eviction_events([EvictPod("cats-worker-0-1", "u", 30, "", "lab/dogs")])
        assert (event.reason, event.subject) == ("Preempting", "cats-worker-0-1")
        assert event.message == "Preempted by lab/dogs: pod cats-worker-0-1 stops within 30 s (grace period)."

    def test_an_eviction_for_another_job_gives_the_reason(self) -> None:
        job = job_with(window(0, 1, "Closing", preemptedBy="lab/dogs", why="which has less work left"))
        (action,) = of_type(EvictPod, decide(observed(job, pod(0, 1))))
        message = "Preempted by lab/dogs, which has less work left: pod cats-worker-0-1 stops within 45 s"
        assert eviction_events([action])[0].message == f"{message} (grace period)."

    def test_an_eviction_for_the_plan_gives_the_reason(self) -> None:
        job = job_with(window(0, 1, "Closing", why="suspended by spec.suspend"))
        (action,) = of_type(EvictPod, decide(observed(job, pod(0, 1))))
        assert eviction_events([action])[0].message.endswith("(grace period): suspended by spec.suspend.")

    def test_pods_evicted_for_one_cause_are_one_event(self) -> None:
        dogs = [EvictPod(f"cats-worker-{n}-1", "u", 30, "which came earlier", "lab/dogs") for n in range(18)]
        other = EvictPod("cats-worker-18-1", "u", 30, "suspended by spec.suspend")
        assert [(one.reason, one.subject, one.message) for one in eviction_events([*dogs, other])] == [
            (
                "Preempting",
                "cats-worker-0-1",
                "Preempted by lab/dogs, which came earlier: 18 pods stop within 30 s (grace period).",
            ),
            (
                "Stopping",
                "cats-worker-18-1",
                "Pod cats-worker-18-1 stops within 30 s (grace period): suspended by spec.suspend.",
            ),
        ]

    def test_preemptor_gets_an_event_that_counts_its_victims(self) -> None:
        names = ("cats-worker-0-1", "cats-worker-1-2", "cats-ps-0-3", "cats-worker-2-4")
        evicted = [EvictPod(name, "u", 30, "", "lab/dogs" if name != names[3] else "") for name in names]
        events = victim_events(evicted, "lab/cats")
        assert {key: event.message for key, event in events.items()} == {
            "lab/dogs": "Preempted lab/cats: 2 workers and 1 parameter server."
        }

    def test_another_eviction_says_why(self) -> None:
        (event,) = eviction_events([EvictPod("cats-worker-0-1", "u", 30, "its window is closing")])
        assert event.reason == "Stopping"
        assert event.message == "Pod cats-worker-0-1 stops within 30 s (grace period): its window is closing."

    @pytest.mark.parametrize("by", ["pod/lab/guest", "lab/dogs"])
    @pytest.mark.parametrize("released", [False, True])
    def test_counted_preemption_is_an_event_once(self, by: str, released: bool) -> None:
        ended = {"index": 0, "attempt": 1, "node": "n1", "reason": "Preempted", "preemptedBy": by}
        job = job_with(window(0, 2), status={"progress": {"attempts": [ended]}})
        actions = decide(observed(job, pod(0, 1, phase="Failed", released=released)))
        messages = [one.message for one in of_type(EmitEvent, actions) if one.reason == "Preempted"]
        assert messages == ([] if released else [f"Preempted by {by}: pod cats-worker-0-1 has ended; no work lost."])

    def test_end_that_an_event_has_reported_is_not_reported_again(self) -> None:
        ended = {"index": 0, "attempt": 1, "node": "n1", "reason": "Preempted", "preemptedBy": "lab/dogs"}
        job, counted = job_with(window(0, 2), status={"progress": {"attempts": [ended]}}), pod(0, 1, phase="Failed")
        (event,) = [one for one in of_type(EmitEvent, decide(observed(job, counted))) if one.reason == "Preempted"]
        assert event.ended == (counted.uid,)
        again = decide(observed(job, counted, reported=frozenset(event.ended)))
        assert not [one for one in of_type(EmitEvent, again) if one.reason == "Preempted"]
        assert named(ReleasePod, again) == [counted.name], "its release is only deferred"

    def test_event_of_counted_preemption_has_cause_and_cost(self) -> None:
        cause = {"preempted_by": "lab/dogs", "why": "which has less work left", "ended": NOW.timestamp()}
        records = [
            AttemptRecord(n, n + 1, "n1", "Preempted", 143, lost_seconds=6.0, **cause)  # type: ignore[arg-type]
            for n in range(2)
        ]
        later = (NOW + timedelta(minutes=5)).isoformat()
        status = {
            "plan": plan() | {"estimatedStart": later},
            "progress": {"history": [pack(one) for one in records]},
        }
        pods = [pod(n, n + 1, phase="Failed") for n in range(2)]
        actions = decide(observed(training_job(status=status), *pods))
        (message,) = [one.message for one in of_type(EmitEvent, actions) if one.reason == "Preempted"]
        cost = f"about 12 s of work lost; resumes at about {NOW + timedelta(minutes=5):%Y-%m-%d %H:%M:%SZ}"
        assert message == f"Preempted by lab/dogs, which has less work left: 2 pods have ended; {cost}."


class TestCounted:
    def test_a_counted_pod_is_released(self) -> None:
        counted = pod(0, 1, phase="Succeeded")
        actions = decide(observed(job_with(window(0, 2)), counted))
        assert of_type(ReleasePod, actions) == [ReleasePod(counted.name, counted.uid, (names.FINALIZER_LEDGER,))]

    def test_only_the_last_two_succeeded_pods_are_kept(self) -> None:
        pods = [pod(0, attempt, phase="Succeeded", released=attempt != 10) for attempt in (9, 2, 10, 8)]
        actions = decide(observed(job_with(window(0, 11)), *pods))
        assert named(ReleasePod, actions) == ["cats-worker-0-10"]
        assert named(DeletePod, actions) == ["cats-worker-0-2", "cats-worker-0-8"]

    def test_the_last_failed_pods_are_kept_beside_succeeded_ones(self) -> None:
        failed = [pod(index, 1 + index, phase="Failed", released=True) for index in range(18)]
        succeeded = [pod(0, attempt, phase="Succeeded", released=True) for attempt in (19, 20)]
        actions = decide(observed(job_with(window(0, 21)), *failed, *succeeded))
        assert named(DeletePod, actions) == ["cats-worker-0-1", "cats-worker-1-2"]

    def test_a_pod_that_was_deleted_is_only_released(self) -> None:
        gone = [pod(0, attempt, phase="Failed", terminating=True) for attempt in (1, 2, 3)]
        actions = decide(observed(job_with(window(0, 4)), *gone))
        assert len(named(ReleasePod, actions)) == 3
        assert not named(DeletePod, actions)

    def test_evicted_pod_that_never_started_is_released_when_counted(self) -> None:
        pending = pod(0, 1, phase="Pending", terminating=True, over=True)
        assert named(ReleasePod, decide(observed(job_with(window(0, 2)), pending))) == ["cats-worker-0-1"]

    def test_plan_for_older_generation_still_releases_counted_pods(self) -> None:
        job = training_job(generation=2, status={"plan": plan(window(0, 2), generation=1)})
        actions = decide(observed(job, pod(0, 1, phase="Failed"), pod(0, 2, phase="Failed")))
        assert named(ReleasePod, actions) == ["cats-worker-0-1"]


class TestOtherJobsPods:
    def test_pods_of_a_deleted_job_are_released_and_deleted(self) -> None:
        actions = decide(observed(None, pod(0, 1), pod(1, 2, terminating=True), pod(2, 3, released=True)))
        assert named(ReleasePod, actions) == ["cats-worker-0-1", "cats-worker-1-2"]
        assert named(DeletePod, actions) == ["cats-worker-0-1", "cats-worker-2-3"]

    def test_deleted_job_deletes_and_releases_pods_and_creates_none(self) -> None:
        job = job_with(window(0, 1), window(1, 2), deleting=True, checked=False)
        actions = decide(observed(job, pod(0, 1)))
        assert [type(action) for action in actions] == [DeletePod, ReleasePod]

    def test_pods_of_deleted_namesake_are_released_and_deleted(self) -> None:
        actions = decide(observed(job_with(window(0, 1), window(1, 2)), pod(0, 1, owner="old"), pod(1, 2)))
        assert named(ReleasePod, actions) == ["cats-worker-0-1"]
        assert named(DeletePod, actions) == ["cats-worker-0-1"]
        assert not created(actions), "the old pod still has the name"

    @pytest.mark.parametrize("present", [True, False])
    def test_orphaned_pods_only_lose_the_finalizer(self, present: bool) -> None:
        job = job_with(window(0, 1)) if present else None
        orphans = [pod(5, 9, owner=None), pod(6, 10, owner=None, phase="Failed", released=True)]
        actions = decide(observed(job, *orphans, pod(0, 1)))
        assert "cats-worker-5-9" in named(ReleasePod, actions)
        stopped = [*named(EvictPod, actions), *named(DeletePod, actions)]
        assert not {"cats-worker-5-9", "cats-worker-6-10"} & set(stopped)


class TestSuspension:
    def test_a_suspended_job_gets_no_pods_even_if_they_are_planned(self) -> None:
        job = job_with(window(0, 1), spec={"suspend": True})
        assert not created(decide(observed(job, service=ServiceState.ABSENT)))

    def test_it_is_suspended_when_its_pods_have_stopped(self) -> None:
        job = job_with(window(0, 1, "Closing"), spec={"suspend": True}, status={"phase": "Running"})
        (running,) = of_type(WriteStatus, decide(observed(job, pod(0, 1, terminating=True))))
        assert running.status["phase"] == "Running"
        (stopped,) = of_type(WriteStatus, decide(observed(job, pod(0, 1, phase="Failed"))))
        assert stopped.status["phase"] == "Suspended"


class TestTemplates:
    def test_each_generation_is_checked_once(self) -> None:
        (check,) = of_type(CheckTemplate, decide(observed(training_job(generation=3, checked=False, servers=1))))
        assert check.generation == 3
        assert [manifest["metadata"]["labels"][names.LABEL_ROLE] for manifest in check.manifests] == ["worker", "ps"]
        assert not of_type(CheckTemplate, decide(observed(training_job(generation=3))))

    def test_an_older_generations_verdict_does_not_count(self) -> None:
        stale = {"conditions": [{**ACCEPTED, "observedGeneration": 1}]}
        job = training_job(generation=2, status=stale, checked=False)
        assert of_type(CheckTemplate, decide(observed(job)))

    def test_template_verdict_sets_condition_and_sends_event(self) -> None:
        verdict = TemplateVerdict(1, ConditionUpdate("InvalidTemplate", "True", "TemplateRejected", "no image"))
        actions = decide(observed(training_job(checked=False), verdict=verdict))
        (write,) = of_type(WriteStatus, actions)
        assert [c["message"] for c in write.status["conditions"] if c["type"] == "InvalidTemplate"] == ["no image"]
        assert "TemplateRejected" in [event.reason for event in of_type(EmitEvent, actions)]
        assert not of_type(CheckTemplate, actions)


class TestRejections:
    refused = Rejection("cats-worker-0-1", "QuotaExceeded", "exceeded quota: q", NOW + timedelta(seconds=5))

    def test_a_refused_pod_is_not_tried_before_its_pause_is_over(self) -> None:
        seen = observed(job_with(window(0, 1), window(1, 2)), rejection=self.refused)
        assert not created(decide(seen))
        assert of_type(RequeueAfter, decide(seen)) == [RequeueAfter(5.0)]
        assert created(decide(seen, after=5)) == ["cats-worker-0-1", "cats-worker-1-2"]

    def test_the_condition_names_the_pod_and_the_reason(self) -> None:
        (write,) = of_type(WriteStatus, decide(observed(job_with(window(0, 1)), rejection=self.refused)))
        (condition,) = [c for c in write.status["conditions"] if c["type"] == "PodsRejected"]
        assert (condition["status"], condition["reason"]) == ("True", "QuotaExceeded")
        assert condition["message"] == "cats-worker-0-1: exceeded quota: q"

    @pytest.mark.parametrize("state", ["Open", "Closing"])
    def test_the_condition_is_false_once_no_planned_pod_is_missing(self, state: str) -> None:
        earlier = {**ACCEPTED, "type": "PodsRejected", "status": "True", "reason": "QuotaExceeded"}
        job = job_with(window(0, 1, state), status={"conditions": [earlier]})
        pods = [pod(0, 1)] if state == "Open" else []
        (write,) = of_type(WriteStatus, decide(observed(job, *pods, rejection=self.refused)))
        (condition,) = [c for c in write.status["conditions"] if c["type"] == "PodsRejected"]
        assert condition["status"] == "False"

    def test_rejected_condition_stays_after_restart_until_retry(self) -> None:
        earlier = {**ACCEPTED, "type": "PodsRejected", "status": "True", "reason": "QuotaExceeded"}
        job = job_with(window(0, 1), status={"conditions": [earlier], "phase": "Waiting"})
        actions = decide(observed(job))
        assert created(actions) == ["cats-worker-0-1"]
        for write in of_type(WriteStatus, actions):
            assert [c["status"] for c in write.status["conditions"] if c["type"] == "PodsRejected"] == ["True"]

    def test_rejection_of_unplanned_pod_delays_nothing(self) -> None:
        assert created(decide(observed(job_with(window(0, 2)), rejection=self.refused))) == ["cats-worker-0-2"]


class TestRefusedEvictions:
    refused = Rejection("cats-worker-0-1", "DisruptionBudget", "the budget all", NOW + timedelta(seconds=5))
    closing = job_with(window(0, 1, "Closing"))

    def seen(self, job: TrainingJob, *pods: Any) -> Observed:
        return observed(job, *(pods or [pod(0, 1)]), refusals={"cats-worker-0-1": self.refused})

    def conditions(self, actions: list[Action]) -> list[tuple[str, str, str]]:
        written = [c for write in of_type(WriteStatus, actions) for c in write.status["conditions"]]
        return [(c["status"], c["reason"], c["message"]) for c in written if c["type"] == "EvictionsRefused"]

    def test_a_pod_is_asked_again_only_after_a_pause(self) -> None:
        assert not of_type(EvictPod, decide(self.seen(self.closing)))
        assert of_type(RequeueAfter, decide(self.seen(self.closing))) == [RequeueAfter(5.0)]
        assert named(EvictPod, decide(self.seen(self.closing), after=5)) == ["cats-worker-0-1"]

    def test_evictions_refused_condition_names_pod_and_budget(self) -> None:
        condition = ("True", "DisruptionBudget", "cats-worker-0-1: the budget all")
        assert self.conditions(decide(self.seen(self.closing))) == [condition]

    @pytest.mark.parametrize("going_on", [True, False])
    def test_it_is_taken_back_when_the_pod_may_go_on_or_stops(self, going_on: bool) -> None:
        earlier = {**ACCEPTED, "type": "EvictionsRefused", "status": "True", "reason": "DisruptionBudget"}
        job = job_with(window(0, 1, "Open" if going_on else "Closing"), status={"conditions": [earlier]})
        actions = decide(self.seen(job, pod(0, 1, terminating=not going_on)))
        assert [status for status, _, _ in self.conditions(actions)] == ["False"]

    def test_after_a_restart_it_stays_until_the_pod_was_asked_again(self) -> None:
        earlier = {**ACCEPTED, "type": "EvictionsRefused", "status": "True", "reason": "DisruptionBudget"}
        job = job_with(window(0, 1, "Closing"), status={"conditions": [earlier]})
        actions = decide(observed(job, pod(0, 1)))
        assert named(EvictPod, actions) == ["cats-worker-0-1"]
        assert [status for status, _, _ in self.conditions(actions)] == ["True"]


class TestGangs:
    def gang(self, *windows: dict[str, Any], **more: Any) -> TrainingJob:
        return job_with(*windows, chunks=None, workers=2, **more)

    refused = Rejection("cats-worker-0-1", "QuotaExceeded", "quota one", NOW)

    def gates(self, seen: Observed) -> list[str]:
        """Return the scheduling gates of all created pods."""
        created_ = of_type(CreatePod, decide(seen))
        assert created_
        return [gate["name"] for action in created_ for gate in action.manifest["spec"].get("schedulingGates", ())]

    def test_members_are_created_without_a_gate(self) -> None:
        assert not self.gates(observed(self.gang(window(0, 1), window(1, 2))))

    def test_members_have_a_gate_after_a_refusal(self) -> None:
        gang = self.gang(window(0, 3), window(1, 4))
        assert self.gates(observed(gang, rejection=self.refused)) == ["tranche.dev/gang"] * 2

    def test_members_have_a_gate_while_pods_rejected_is_true(self) -> None:
        earlier = {**ACCEPTED, "type": "PodsRejected", "status": "True", "reason": "QuotaExceeded"}
        gang = self.gang(window(0, 3), window(1, 4), status={"conditions": [earlier]})
        assert self.gates(observed(gang)) == ["tranche.dev/gang"] * 2

    @pytest.mark.parametrize(
        ("job", "gates"),
        [
            (training_job(status={"plan": plan(window(0, 1))}), 0),
            (training_job(chunks=None, workers=1, status={"plan": plan(window(0, 1))}), 0),
            (training_job(chunks=None, workers=1, servers=1, status={"plan": plan(window(0, 1))}), 1),
            (training_job(chunks=None, workers=1, chief=True, status={"plan": plan(window(0, 1))}), 1),
        ],
        ids=["chunks", "one pod", "with a server", "with a chief"],
    )
    def test_only_gangs_of_several_pods_have_gates(self, job: TrainingJob, gates: int) -> None:
        assert len(self.gates(observed(job, rejection=self.refused))) == gates

    def test_the_gate_stays_while_a_member_is_missing(self) -> None:
        seen = observed(self.gang(window(0, 1), window(1, 2)), pod(0, 1, phase="Pending", gated=True))
        assert not named(UngatePod, decide(seen))

    def test_the_gates_open_when_all_members_exist(self) -> None:
        pods = [pod(index, index + 1, phase="Pending", gated=True) for index in range(2)]
        seen = observed(self.gang(window(0, 1), window(1, 2)), *pods)
        assert named(UngatePod, decide(seen)) == ["cats-worker-0-1", "cats-worker-1-2"]

    def test_a_member_that_is_closing_keeps_its_gate_and_is_evicted(self) -> None:
        pods = [pod(index, index + 1, phase="Pending", gated=True) for index in range(2)]
        seen = observed(self.gang(window(0, 1, "Closing"), window(1, 2, "Closing")), *pods)
        assert not named(UngatePod, decide(seen))
        assert len(named(EvictPod, decide(seen))) == 2

    def test_the_gates_open_when_the_chief_and_the_servers_exist_too(self) -> None:
        entries = plan(window(0, 1), servers=[server(0, 2)], chief=server(0, 3))
        job = training_job(chunks=None, workers=1, servers=1, chief=True, status={"plan": entries})
        worker_, server_ = pod(0, 1, phase="Pending", gated=True), pod(0, 2, role="ps", phase="Pending", gated=True)
        chief = pod(0, 3, role="chief", phase="Pending", gated=True)
        assert created(decide(observed(job))) == ["cats-chief-0-3", "cats-ps-0-2", "cats-worker-0-1"]
        for some in ((worker_, server_), (worker_, chief), (server_, chief)):
            assert not named(UngatePod, decide(observed(job, *some)))
        names_ = ["cats-worker-0-1", "cats-ps-0-2", "cats-chief-0-3"]
        assert named(UngatePod, decide(observed(job, worker_, server_, chief))) == names_
