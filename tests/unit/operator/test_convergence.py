"""For any observed state, the decision keeps its invariants, and applying it leads to a state without actions."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from hypothesis import event, given
from hypothesis import strategies as st

from support.operator_objects import NOW, UID, observed, plan, pod, server, training_job, window
from tranche.kube.api import names
from tranche.kube.api.resources import AdmittedPods, TrainingJob
from tranche_operator.reconcile.actions import (
    Action,
    CheckTemplate,
    CreatePod,
    CreateService,
    DeleteJob,
    DeletePod,
    EvictPod,
    ReleasePod,
    RequeueAfter,
    UngatePod,
    UpdateService,
    WithdrawPod,
    WriteStatus,
)
from tranche_operator.reconcile.observed import (
    Observed,
    PodView,
    Rejection,
    ServiceState,
    TemplateVerdict,
    entries_of,
    is_open,
)
from tranche_operator.reconcile.reconcile import reconcile
from tranche_operator.reconcile.status import TERMINAL, ConditionUpdate
from tranche_operator.settings import Settings

SETTINGS = Settings()
ROUNDS = 6
"""Reconciles after which every state must have settled."""

PHASES = ("Pending", "Running", "Succeeded", "Failed")


@st.composite
def pods(draw: st.DrawFn, gang: bool) -> list[PodView]:
    """Draw pods of the job, of an earlier job, and without an owner; each name once."""
    slots = draw(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), unique=True, max_size=6))
    found = []
    for index, attempt in slots:
        phase = draw(st.sampled_from(PHASES))
        terminating = draw(st.booleans())
        found.append(
            pod(
                index,
                attempt,
                role=draw(st.sampled_from(["worker", "worker", "ps"])),
                phase=phase,
                owner=draw(st.sampled_from([UID, UID, UID, "earlier", None])),
                # What is deleted and held by no finalizer is soon not there; an idle kubelet may take its time.
                released=draw(st.booleans()) and not terminating,
                terminating=terminating,
                over=phase in ("Succeeded", "Failed") or (phase == "Pending" and terminating),
                gated=gang and phase == "Pending" and draw(st.booleans()),
            )
        )
    return found


@st.composite
def jobs(draw: st.DrawFn, gang: bool) -> TrainingJob | None:
    """A job in any phase, with any plan; or none."""
    if draw(st.integers(0, 9)) == 0:
        return None
    generation = draw(st.integers(1, 2))
    status: dict[str, Any] = {}
    if draw(st.booleans()):
        slots = draw(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 5)), unique=True, max_size=4))
        windows = [window(index, attempt, draw(st.sampled_from(["Open", "Closing"]))) for index, attempt in slots]
        servers = [server(0, draw(st.integers(1, 4)))] if draw(st.booleans()) else []
        status["plan"] = plan(*windows, servers=servers, generation=draw(st.sampled_from([generation, generation, 0])))
    if draw(st.booleans()):
        done = draw(st.sampled_from(["", "0", "0-2"]))
        status["progress"] = {"done": done, "failures": draw(st.sampled_from([0, 0, 9]))}
    phase = draw(st.sampled_from([None, "Waiting", "Starting", "Running", "Suspended", "Succeeded", "Failed"]))
    if phase:
        status["phase"] = phase
    if phase in TERMINAL:
        since = draw(st.sampled_from([0, 30, 90]))
        status["completionTime"] = (NOW - timedelta(seconds=since)).isoformat()
    policy: dict[str, Any] = {"cleanPodPolicy": draw(st.sampled_from(["All", "Running", "None"]))}
    if draw(st.booleans()):
        policy["ttlSecondsAfterFinished"] = draw(st.sampled_from([0, 1000]))
    return training_job(
        generation=generation,
        deleting=draw(st.integers(0, 9)) == 0,
        chunks=None if gang else 3,
        workers=3,
        servers=1,
        spec={"suspend": draw(st.integers(0, 3)) == 0, "runPolicy": policy},
        status=status,
        checked=draw(st.booleans()),
    )


@st.composite
def states(draw: st.DrawFn) -> Observed:
    gang = draw(st.booleans())
    service = draw(st.sampled_from([ServiceState.OWN, ServiceState.ABSENT, ServiceState.OUTDATED]))
    return observed(draw(jobs(gang)), *draw(pods(gang)), service=service)


def targets(kind: type[ReleasePod | EvictPod | DeletePod | UngatePod], actions: list[Action]) -> set[str]:
    return {action.name for action in actions if isinstance(action, kind)}


@given(states())
def test_promises(seen: Observed) -> None:
    actions = reconcile(seen, SETTINGS, NOW)
    by_name = {pod.name: pod for pod in seen.pods}
    stopped = targets(EvictPod, actions) | targets(DeletePod, actions)
    assert all(by_name[name].owner is not None for name in stopped), "pods of others are not ours to stop"
    assert not any(by_name[name].terminating for name in stopped)
    created = {action.manifest["metadata"]["name"] for action in actions if isinstance(action, CreatePod)}
    assert not created & {name for name, pod in by_name.items() if pod.owner is not None or pod.terminating}
    job = seen.job
    if job is None or job.metadata.deletion_timestamp is not None:
        assert not created
        return
    entries = entries_of(job)
    current = job.status.plan is not None and job.status.plan.observed_generation == job.metadata.generation
    assert current or not created, "a plan for another generation creates nothing"
    assert current or targets(EvictPod, actions) <= set(entries), "and stops only what it closes"
    assert not any(name in entries and is_open(entries[name]) for name in targets(EvictPod, actions))
    assert created <= {name for name, entry in entries.items() if is_open(entry)}
    over = {pod.name for pod in seen.pods if pod.over and pod.owner == UID}
    phases = [action.status["phase"] for action in actions if isinstance(action, WriteStatus)] or [job.status.phase]
    terminal = phases[0] in TERMINAL
    own_releases = {name for name in targets(ReleasePod, actions) if by_name[name].owner == UID}
    assert own_releases <= over, "only the end of a pod can have been counted"
    if not terminal:
        assert not own_releases & set(entries), "what the plan still holds is not counted"
    assert not (terminal and created)
    assert sum(isinstance(action, RequeueAfter) for action in actions) <= 1


@given(states(), st.booleans())
def test_carrying_out_the_decision_settles(seen: Observed, quick: bool) -> None:
    actions: list[Action] = []
    for number in range(ROUNDS):
        actions = [action for action in reconcile(seen, SETTINGS, NOW) if not isinstance(action, RequeueAfter)]
        if not actions:
            event(f"settled after {number} reconciles")
            return
        for action in actions:
            seen = carry_out(seen, action, quick)
    raise AssertionError(f"still to be done: {actions}")


def carry_out(seen: Observed, action: Action, quick: bool) -> Observed:
    """The cluster after an action, as far as reconcile sees it; a quick kubelet stops pods at once."""
    match action:
        case CreatePod():
            made = _pod_of(action.manifest)
            if any(pod.name == made.name for pod in seen.pods):
                later = NOW + timedelta(seconds=5)
                return replace(seen, rejection=Rejection(made.name, "NameTaken", "delete it", later))
            return replace(seen, pods=(*seen.pods, made))
        case ReleasePod():
            return _change(seen, action.name, lambda pod: replace(pod, finalizers=()))
        case EvictPod() | DeletePod():
            return _change(seen, action.name, lambda pod: _stop(pod, quick))
        case UngatePod():
            return _change(seen, action.name, lambda pod: replace(pod, gates=()))
        case WithdrawPod():
            return _change(seen, action.name, lambda pod: replace(pod, selected=False))
        case CreateService() | UpdateService():
            return replace(seen, service=ServiceState.OWN)
        case CheckTemplate():
            update = ConditionUpdate(names.CONDITION_INVALID_TEMPLATE, "False", "TemplateAccepted")
            admitted = AdmittedPods(generation=action.generation)
            return replace(seen, verdict=TemplateVerdict(action.generation, update, admitted))
        case WriteStatus():
            assert seen.job is not None
            document = seen.job.model_dump(by_alias=True, mode="json")
            # Server-side apply also removes what the same manager does not name any more.
            document["status"] = {field: document["status"][field] for field in ("plan", "progress")} | action.status
            return replace(seen, job=TrainingJob.model_validate(document))
        case DeleteJob():
            return replace(seen, job=None)
    return seen


def _change(seen: Observed, name: str, change: Any) -> Observed:
    changed = [change(pod) if pod.name == name else pod for pod in seen.pods]
    return replace(seen, pods=tuple(pod for pod in changed if pod.finalizers or not (pod.terminating and pod.over)))


def _stop(pod: PodView, quick: bool) -> PodView:
    if quick or pod.phase == "Pending":
        return replace(pod, terminating=True, phase="Failed" if pod.phase != "Succeeded" else pod.phase, over=True)
    return replace(pod, terminating=True)


def _pod_of(manifest: dict[str, Any]) -> PodView:
    metadata, labels = manifest["metadata"], manifest["metadata"]["labels"]
    return PodView(
        name=metadata["name"],
        uid=f"uid-{metadata['name']}",
        owner=metadata["ownerReferences"][0]["uid"],
        role=labels[names.LABEL_ROLE],
        attempt=int(labels[names.LABEL_ATTEMPT]),
        phase="Pending",
        over=False,
        terminating=False,
        finalizers=tuple(metadata["finalizers"]),
        gates=tuple(gate["name"] for gate in manifest["spec"].get("schedulingGates", ())),
    )
