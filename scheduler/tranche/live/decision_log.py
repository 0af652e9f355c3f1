"""Log of the planner's decisions: one line for each decision about a job or node, with its effect and its cause.

The planner itself logs nothing. The lines follow from its instructions, and from the state of the jobs that a decision
has changed. Windows are counted by site, so the number of lines does not depend on the number of pods. Decisions of one
kind about one job are at most one line every `PACE_SECONDS`; those in between are added up.
"""

import logging
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from tranche.model import AttemptRecord, JobPlan, until
from tranche.model.place_counts import places_text
from tranche.model.stop_text import cost_text, duration_text, preemption_text
from tranche.planner import (
    ChiefEnded,
    ChunksRequested,
    ChunkStaged,
    CloseParameterServer,
    CloseWindow,
    Event,
    EvictionRefused,
    Instruction,
    JobChanged,
    JobFailed,
    JobRemoved,
    JobSubmitted,
    JobUnreadable,
    KubeSchedulerChanged,
    NodeChanged,
    NodeJoined,
    NodeRemoved,
    OpenWindow,
    ParameterServerEnded,
    PlaceParameterServer,
    Planner,
    PlanRejected,
    PodAdmitted,
    PodOverdue,
    PodStartFailed,
    ProgressReported,
    QuotaChanged,
    QuotaRemoved,
    SiteChanged,
    SiteRemoved,
    StageData,
    StagingEnded,
    TenancyChanged,
    Tick,
    WorkerBound,
    WorkerEnded,
    WorkerRejected,
    WorkerStarted,
    WorkerUnschedulable,
)
from tranche.state.job import JobState
from tranche.state.node_health import Exclusion, ExclusionPhase
from tranche.state.phases import JobPhase

logger = logging.getLogger(__name__)

Decision = Literal[
    "submitted",
    "changed",
    "removed",
    "planned",
    "unplannable",
    "plannable",
    "opens",
    "closes",
    "preempts",
    "opens-server",
    "closes-server",
    "opens-chief",
    "closes-chief",
    "copies",
    "ended",
    "held",
    "suspended",
    "resumed",
    "succeeded",
    "failed",
    "excluded",
    "trial",
    "readmitted",
]
"""Kinds of decisions; docs/reference/logs-and-events.md describes them."""
PACE_SECONDS = 20.0
"""Time after a line in which further decisions of the same kind about the same job are only counted."""
CAUSES: Mapping[type, str] = {
    JobSubmitted: "{0.job.key} was submitted",
    JobChanged: "the specification or the admitted pods of {0.job.key} were changed",
    JobFailed: "{0.job} was ended: {0.message}",
    JobUnreadable: "{0.job} changed: {0.message}",
    JobRemoved: "{0.job} was deleted or has ended",
    NodeChanged: "node {0.node.name} is new or was changed",
    NodeRemoved: "node {0.node} was removed",
    NodeJoined: "node {0.node} has joined the unlimited site {0.site}",
    SiteChanged: "site {0.site.name} is new or was changed",
    SiteRemoved: "site {0.site} was removed",
    QuotaChanged: "quota {0.quota.key} is new or was changed",
    QuotaRemoved: "quota {0.namespace}/{0.name} was removed",
    KubeSchedulerChanged: "kube-scheduler stopped or began to respond",
    WorkerBound: "a pod of {0.job} was bound to node {0.node}",
    WorkerStarted: "a pod of {0.job} started",
    ProgressReported: "{0.report.job} reported progress",
    ChunksRequested: "a worker of {0.request.job} asked for chunks",
    WorkerEnded: "a worker of {0.job} ended: {0.outcome}",
    PodStartFailed: "a pod of {0.job} did not start: {0.reason}",
    PodAdmitted: "a pod of {0.job} was admitted with larger requests",
    PodOverdue: "a pod of {0.job} does not stop",
    WorkerUnschedulable: "a pod of {0.job} found no place: {0.message}",
    WorkerRejected: "the API server rejected pods of {0.job}: {0.message}",
    PlanRejected: "the API server rejected the status of {0.job}: {0.message}",
    EvictionRefused: "a disruption budget protects pods of {0.job}: {0.message}",
    ParameterServerEnded: "a parameter server of {0.job} ended: {0.outcome}",
    ChiefEnded: "the chief of {0.job} ended: {0.outcome}",
    ChunkStaged: "the data of a chunk of {0.job} arrived at {0.site}",
    StagingEnded: "a staging pod of {0.job} ended: {0.outcome}",
    TenancyChanged: "the limits of namespaces were changed",
    Tick: "a planned time came, such as that of arriving data or of the end of a hold",
}
"""Cause in words by type of event."""
TAKEN_OVER = "this replica took over"
"""Cause of the first decision of a leader, whose events are everything that happened since the last plan."""
_MINOR = (WorkerBound, WorkerStarted, ProgressReported, PodAdmitted, PodOverdue)
"""Events that free no capacity and start no window."""
_FREEING = (
    JobChanged,
    JobFailed,
    JobRemoved,
    QuotaChanged,
    QuotaRemoved,
    TenancyChanged,
    WorkerEnded,
    PodStartFailed,
    ParameterServerEnded,
    ChiefEnded,
)
"""Events that let other jobs start. Nodes and sites are left out: most of their changes are of other kinds."""


class Topic(NamedTuple):
    """Decisions that are added up: of one kind, about one job, for one stated reason."""

    job: str
    decision: Decision
    other: str = ""
    """Preempting or preempted job, or the outcome of ended workers."""
    why: str = ""
    """Reason in words; empty: the event is the reason."""


@dataclass(slots=True)
class DecisionCount:
    """Number of windows, parameter servers, chunks or workers, and what caused the last decision about them."""

    places: Counter[str] = field(default_factory=Counter)
    """Numbers by site or node."""
    cause: Event | None = None
    lost_seconds: float = 0.0
    since: float | None = None
    """Time of the first of several decisions; None if there was one."""

    def add(self, other: "DecisionCount") -> None:
        """Add later decisions."""
        self.places.update(other.places)
        self.cause = other.cause
        self.lost_seconds += other.lost_seconds


@dataclass(slots=True)
class _Paused:
    due: float
    """Time of the next line."""
    counted: DecisionCount | None = None
    """Decisions since the last line; None if there was none."""


class DecisionLog:
    """Writer of the lines for one planner."""

    def __init__(self, planner: Planner) -> None:
        """Create a log that knows no job.

        Args:
            planner: The planner, whose state is read after each decision.
        """
        self._planner = planner
        self._paused: dict[str, dict[Topic, _Paused]] = {}
        """Topics with a recent line, by job."""
        self._due: deque[tuple[float, Topic]] = deque()
        """Times at which their pauses end, in order; entries of topics that were dropped remain."""
        self._phases: dict[str, JobPhase] = {}
        """Phases of all jobs, as `_coarse` returns them."""
        self._generations: dict[str, int] = {}
        self._ended: dict[str, int] = {}
        """Number of ended pods by job."""
        self._unplanned: set[str] = set()
        """Jobs without a line about their first plan."""
        self._unplannable: dict[str, str] = {}
        self._nodes: dict[str, tuple[ExclusionPhase, int, str]] = {}
        """Phase, number and site of the exclusions of nodes."""

    def restored(self, now: float) -> None:
        """Take the state of all jobs and nodes as known, after the planner has restored it."""
        for key, state in self._planner.cluster.jobs.items():
            self._phases[key] = _coarse(state.phase(now))
            self._ended[key] = sum(state.ended.values())
            self._generations[key] = state.job.generation
        self._nodes = {one.node: (one.phase, one.count, one.site) for one in self._exclusions()}

    def took_over(self, instructions: Iterable[Instruction], now: float) -> None:
        """Log the first decision after `restored`."""
        if logger.isEnabledFor(logging.INFO):
            self._decided(_counted(instructions, (), TAKEN_OVER), (), now)

    def decided(self, instructions: Iterable[Instruction], events: Sequence[Event], now: float) -> None:
        """Log a decision; call it before the planner makes another one."""
        if not logger.isEnabledFor(logging.INFO):
            return
        for event in events:
            self._note_event(event, now)
        self._decided(_counted(instructions, events), events, now)

    def _decided(self, found: dict[Topic, DecisionCount], events: Sequence[Event], now: float) -> None:
        for key in self._planner.changed:
            state = self._planner.cluster.jobs.get(key)
            if state is not None:
                self._count_ends(key, state, _last_about(key, events), found)
        self.flush(now)
        for topic, counted in found.items():
            self._write_paced(topic, counted, now)
        for key in self._planner.changed:
            state = self._planner.cluster.jobs.get(key)
            if state is not None:
                self._note_phase(key, state, _last_about(key, events), now)
        if self._nodes or self._planner.cluster.health.exclusions:
            self._note_nodes(now)

    def planned(self, key: str, plan: JobPlan, now: float) -> None:
        """Log the first plan of a job that has times, and that it cannot be planned; call it for each written plan."""
        if plan.unplannable != self._unplannable.get(key, ""):
            if plan.unplannable:
                self._unplannable[key] = plan.unplannable
                _write(key, "unplannable", "cannot be planned", plan.explanation, reason=plan.unplannable)
            else:
                del self._unplannable[key]
                _write(key, "plannable", "can be planned again", plan.explanation)
        if key in self._unplanned and plan.estimated_completion is not None:
            self._unplanned.discard(key)
            start, end = plan.estimated_start or now, plan.estimated_completion
            effect = f"has a plan, with start at{_at(start, now)} and completion at{_at(end, now)}"
            _write(key, "planned", effect, plan.explanation if plan.waits_for else "it has room")

    def flush(self, now: float) -> None:
        """Write the lines that are due about decisions that were only counted."""
        while self._due and self._due[0][0] <= now:
            due, topic = self._due.popleft()
            topics = self._paused.get(topic.job, {})
            paused = topics.get(topic)
            if paused is None or paused.due != due:
                continue
            del topics[topic]
            if not topics:
                del self._paused[topic.job]
            if paused.counted is not None:
                self._write(topic, paused.counted, now)

    # ---- jobs

    def _note_event(self, event: Event, now: float) -> None:
        match event:
            case JobSubmitted(job=job) if job.key not in self._phases:
                self._phases[job.key], self._ended[job.key] = JobPhase.WAITING, 0
                self._generations[job.key] = job.generation
                self._unplanned.add(job.key)
                most = f"{_plural(job.chunks, 'chunk')}, at most {_plural(job.max_workers, 'worker')}"
                size = f"a gang of {_plural(job.chunks, 'worker')}" if job.is_gang else most
                effect = f"is planned from now on: {size} of {_plural(job.gpus, 'GPU')}"
                _write(job.key, "submitted", effect, "it was submitted")
            case JobChanged(job=job) if self._generations.get(job.key, job.generation) != job.generation:
                self._generations[job.key] = job.generation
                _write(job.key, "changed", f"is planned by generation {job.generation}", "its specification changed")
            case JobRemoved(job=key, stays=False) if key in self._phases:
                self._forget(key, now)
                phase = self._phases.pop(key)
                if phase not in (JobPhase.FINISHED, JobPhase.FAILED):
                    _write(key, "removed", "is not planned any more", "it was deleted or has ended")
            case _:
                pass

    def _forget(self, key: str, now: float) -> None:
        """Write what was counted about a job, and drop the job."""
        self._write_counted(key, now)
        self._paused.pop(key, None)
        self._ended.pop(key, None)
        self._generations.pop(key, None)
        self._unplanned.discard(key)
        self._unplannable.pop(key, None)

    def _count_ends(self, key: str, state: JobState, cause: Event, found: dict[Topic, DecisionCount]) -> None:
        """Count pods of a job that have ended and did not succeed."""
        total = sum(state.ended.values())
        new = total - self._ended.get(key, 0)
        self._ended[key] = total
        for record in state.history[-new:] if new > 0 else ():
            if isinstance(record, AttemptRecord) and record.reason != "Succeeded":
                code = f"exit code {record.exit_code}" if record.reason == "Failed" and record.exit_code else ""
                stop = preemption_text(record.preempted_by, record.why) if record.preempted_by else record.why
                topic = Topic(key, "ended", record.reason, "; ".join(part for part in (code, stop) if part))
                counted = found.setdefault(topic, DecisionCount())
                counted.add(DecisionCount(Counter({record.node: 1}), cause, record.lost_seconds))

    def _note_phase(self, key: str, state: JobState, cause: Event, now: float) -> None:
        before = self._phases.get(key, JobPhase.WAITING)
        if before is JobPhase.WAITING and state.active and (state.runs or state.held_until <= now):
            return  # most often
        phase = _coarse(state.phase(now))
        if phase is before:
            return
        self._phases[key] = phase
        match phase:
            case JobPhase.FINISHED:
                self._write_counted(key, now)
                took = duration_text(max(0.0, now - state.job.submitted))
                counts = f"{state.preemptions} stopped and {state.failures} failed workers"
                _write(key, "succeeded", f"has succeeded {took} after its submission, with {counts}", _cause(cause))
            case JobPhase.FAILED:
                self._write_counted(key, now)
                limit = f"more than runPolicy.backoffLimit {state.job.backoff_limit}"
                why = state.end_reason or f"{state.failures} pods failed, {limit}"
                _write(key, "failed", f"has failed: {why}", _cause(cause))
            case JobPhase.SUSPENDED:
                _write(key, "suspended", "is suspended", "spec.suspend is true")
            case JobPhase.HELD:
                _write(key, "held", f"starts no pods{until(state.held_until, now)}", state.hold_reason or _cause(cause))
            case _ if before is JobPhase.SUSPENDED:
                _write(key, "resumed", "is planned again", "spec.suspend is false")

    def _write_counted(self, key: str, now: float) -> None:
        """Write what was counted about a job, so that its lines are in the order of the decisions."""
        for topic, paused in self._paused.get(key, {}).items():
            if paused.counted is not None:
                _write_count(topic, paused.counted, now)
                paused.counted = None

    def _write_paced(self, topic: Topic, counted: DecisionCount, now: float) -> None:
        """Write the line of a decision, or only count it if its topic has a recent line."""
        paused = self._paused.get(topic.job, {}).get(topic)
        if paused is None:
            self._write(topic, counted, now)
        elif paused.counted is None:
            paused.counted, counted.since = counted, now
        else:
            paused.counted.add(counted)

    def _write(self, topic: Topic, counted: DecisionCount, now: float) -> None:
        """Write a line, and begin the pause of its topic."""
        self._write_counted(topic.job, now)
        paused = _Paused(now + PACE_SECONDS)
        self._paused.setdefault(topic.job, {})[topic] = paused
        self._due.append((paused.due, topic))
        _write_count(topic, counted, now)

    # ---- nodes

    def _exclusions(self) -> Iterator[Exclusion]:
        return iter(self._planner.cluster.health.exclusions.values())

    def _note_nodes(self, now: float) -> None:
        before, self._nodes = self._nodes, {one.node: (one.phase, one.count, one.site) for one in self._exclusions()}
        for one in self._exclusions():
            known = before.get(one.node)
            if known is not None and known[:2] == (one.phase, one.count):
                continue
            match one.phase:
                case ExclusionPhase.EXCLUDED:
                    _write_node(one.site, one.node, "excluded", f"takes no new pods{until(one.until, now)}", one.reason)
                case ExclusionPhase.TRIAL:
                    _write_node(one.site, one.node, "trial", "may take pods of one job", "its exclusion is over")
                case ExclusionPhase.RECOVERED:
                    _write_node(one.site, one.node, "readmitted", "takes pods again", "a worker trained there")
        for node, (phase, _, site) in before.items():
            if node not in self._nodes and phase is not ExclusionPhase.RECOVERED:
                cause = "it was uncordoned or removed, or its exclusion has lost its grounds"
                _write_node(site, node, "readmitted", "is not excluded any more", cause)


def _coarse(phase: JobPhase) -> JobPhase:
    """Return WAITING for the phases between which windows lead, which have lines of their own."""
    return JobPhase.WAITING if phase in (JobPhase.RUNNING, JobPhase.STOPPING) else phase


def _job_of(event: Event) -> str:
    """Return the key of the job that an event is about; "" if it is about none."""
    match event:
        case JobSubmitted(job=job) | JobChanged(job=job):
            return job.key
        case ChunksRequested(request=request):
            return request.job
        case ProgressReported(report=report):
            return report.job
        case _:
            return getattr(event, "job", "")


def _last_about(key: str, events: Sequence[Event]) -> Event:
    """Return the last event about a job, else the last one."""
    own = (event for event in reversed(events) if _job_of(event) == key)
    return next(own, events[-1] if events else Tick())


def _reason_of(key: str, stated: Event, events: Sequence[Event]) -> Event:
    """Return the event for which a job's windows open or close.

    An instruction states the last of the events that the planner has handled together. Those about the job itself come
    first, then those that free capacity.

    Args:
        key: Job whose windows open or close.
        stated: Cause of the instruction.
        events: Events that were handled together, in order.
    """
    if len(events) < 2 or stated is not events[-1]:
        return stated
    major = [event for event in events if not isinstance(event, _MINOR)]
    own = [event for event in major if _job_of(event) == key]
    freeing = [event for event in major if isinstance(event, _FREEING)]
    return (own or freeing or major or [stated])[-1]


def _counted(
    instructions: Iterable[Instruction], events: Sequence[Event], reason: str = ""
) -> dict[Topic, DecisionCount]:
    """Count instructions by topic and site.

    Args:
        instructions: Instructions of one decision.
        events: Events that led to it.
        reason: Reason in words of all that have none of their own.
    """
    found: dict[Topic, DecisionCount] = {}

    def count(topic: Topic, site: str, cause: Event, number: int = 1) -> None:
        topic = topic._replace(why=topic.why or reason)
        counted = found.get(topic)
        if counted is None:
            counted = found[topic] = DecisionCount()
        counted.places[site] += number
        counted.cause = _reason_of(topic.job, cause, events)

    for one in instructions:
        match one:
            case OpenWindow(job=job, window=window):
                count(Topic(job, "opens"), window.site, one.cause)
            case CloseWindow(job=job, window=window):
                by, why = window.preempted_by, window.why
                count(Topic(job, "closes", by, why), window.site, one.cause)
                if by and not by.startswith("pod/"):
                    count(Topic(by, "preempts", job, why), window.site, one.cause)
            case PlaceParameterServer(job=job, server=server):
                count(Topic(job, "opens-chief" if server.is_chief else "opens-server"), server.site, one.cause)
            case CloseParameterServer(job=job, server=server):
                kind: Decision = "closes-chief" if server.is_chief else "closes-server"
                count(Topic(job, kind, server.preempted_by, server.why), server.site, one.cause)
            case StageData(job=job, chunks=chunks, site=site):
                count(Topic(job, "copies"), site, one.cause, len(chunks))
    return found


_NOUNS = {"server": "parameter server", "chief": "chief"}


def _write_count(topic: Topic, counted: DecisionCount, now: float) -> None:
    count = counted.places.total()
    within = f" within {duration_text(now - counted.since)}" if counted.since is not None and count > 1 else ""
    verb, _, role = topic.decision.partition("-")
    things = _plural(count, _NOUNS.get(role, "window"))
    preposition = "on" if verb == "ended" else "to" if verb == "copies" else "at"
    places = places_text(counted.places, preposition, "others")
    cause = topic.why or (_cause(counted.cause) if counted.cause is not None else "")
    fields: dict[str, Any] = {"count": count, "places": dict(counted.places)}
    match verb:
        case "preempts":
            effect = f"preempts {things} of {topic.other}{within}: {places}"
            cause = f"{topic.job}{topic.why.removeprefix('which')}" if topic.why.startswith("which ") else cause
            fields["victim"] = topic.other
        case "closes":
            effect = f"closes {things}{within}: {places}"
            if topic.other:
                cause = preemption_text(topic.other, topic.why)
                fields["preemptedBy"] = topic.other
        case "copies":
            effect = f"copies chunks to other sites{within}: {places}"
        case "ended":
            cost = f"; {cost_text(counted.lost_seconds)}" if counted.lost_seconds or "preempted by" in topic.why else ""
            effect = f"counts {_plural(count, 'pod')} as {topic.other}{within}: {places}{cost}"
            fields |= {"outcome": topic.other, "lostSeconds": round(counted.lost_seconds, 1)}
        case _:
            effect = f"opens {things}{within}: {places}"
    _write(topic.job, topic.decision, effect, cause, **fields)


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _cause(event: Event) -> str:
    return " ".join(CAUSES[type(event)].format(event).split())


def _at(moment: float, now: float) -> str:
    return until(moment, now).removeprefix(" until")


def _write(job: str, decision: Decision, effect: str, cause: str, **fields: Any) -> None:
    extra = {"job": job, "decision": decision, "cause": cause, **fields}
    logger.info("%s %s (cause: %s)", job, effect, cause, extra=extra)


def _write_node(site: str, node: str, decision: Decision, effect: str, cause: str) -> None:
    extra = {"site": site, "node": node, "decision": decision, "cause": cause}
    logger.info("node %s at site %s %s (cause: %s)", node, site, effect, cause, extra=extra)
