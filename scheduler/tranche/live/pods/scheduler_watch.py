"""Whether kube-scheduler responds, and its verdicts about pods."""

import re
from collections.abc import Collection, Container, Iterable
from collections.abc import Set as AbstractSet
from datetime import datetime
from math import inf

from tranche.kube.api.core_types import Pod, PodCondition
from tranche.kube.api.names import SCHEDULER_NAME, GpuResources
from tranche.kube.convert.pod_state import is_over

NO_ROOM = re.compile(r"Insufficient ([\w./-]*\w)")
"""Part of the message of kube-scheduler if a node lacks a free resource. It checks volumes and affinity between
pods only afterwards, so the message changes when room becomes free and the pod has no place all the same."""


class SchedulerWatch:
    """Whether kube-scheduler responds: whether it binds or judges the pods that wait for it."""

    def __init__(self, silence_seconds: float, provisioning_seconds: float) -> None:
        """Assume that it responds.

        Args:
            silence_seconds: Time that a pod may wait for a node or for the condition PodScheduled, if no other pod gets
                one meanwhile.
            provisioning_seconds: The same for a pod with volume claims: kube-scheduler binds it, and judges it, only
                when its volumes are provisioned. Also the longest time that any pod may wait without a verdict.
        """
        self.provisioning_seconds = provisioning_seconds
        self._silence_seconds = silence_seconds
        self._arrivals: dict[str, float] = {}
        """Time at which each pod was first seen, by UID."""
        self._since: dict[str, float] = {}
        """Time since which each pod waits that is not handled, by UID."""
        self._handled: set[str] = set()
        self._active = -inf
        self._latest = -inf
        """Latest arrival of a pod that was bound or judged."""
        self.responds = True
        """Whether it responded at the last check."""
        self.next_due = inf
        """Time by the monotonic clock at which it does not respond if nothing happens; infinite if no pod waits."""

    def take_over(self, pods: Collection[Pod], now: float, elapsed: float) -> bool:
        """Return whether kube-scheduler responds, by the times in the pods that this planner has not watched before.

        Otherwise a new leader would stop workers during the whole silence time again. A pod whose gates were removed
        waits from now on: it has no time of that.

        Args:
            pods: Pods of jobs, as the watch has them.
            now: Wall clock.
            elapsed: Monotonic seconds.
        """
        for pod in pods:
            if other_scheduler(pod):
                continue
            uid, created = pod.metadata.uid, elapsed - _age(pod.metadata.creation_timestamp, now)
            self._arrivals[uid] = created
            known = next((c for c in pod.status.conditions if c.type == "PodScheduled"), None)
            if known is None:
                self._since[uid] = created
            elif known.reason != "SchedulingGated":
                self._handled.add(uid)
                self._latest = max(self._latest, created)
                self._active = max(self._active, elapsed - _age(known.last_transition_time, now))
        self.check(pods, elapsed)
        return self.responds

    def check(
        self,
        pods: Iterable[Pod],
        elapsed: float,
        outdated: Container[str] = (),
        settled: AbstractSet[str] = frozenset(),
    ) -> bool:
        """Return whether it has stopped or begun to respond since the last check.

        A pod that kube-scheduler passes over says nothing: one that a webhook has given to another scheduler, one with
        resource claims, which is not judged before these exist, and one that came earlier than a judged pod, by more
        than the time that it may wait. A judged pod that should be judged again is evidence for a limited time: the
        same verdict is not written again, so that a kube-scheduler that repeats it looks like one that has stopped.

        Args:
            pods: Pods of open windows and helpers.
            elapsed: Monotonic seconds.
            outdated: UIDs of judged pods that kube-scheduler should judge again.
            settled: UIDs of further pods of that kind, which were bound at an earlier check.
        """
        arrivals: dict[str, float] = {}
        waiting: dict[str, float] = {}
        handled: set[str] = set()
        self.next_due, responds = inf, True
        late: list[tuple[float, float]] = []
        """Times from which and until which a pod is evidence that it does not respond."""
        for pod in pods:
            if other_scheduler(pod):
                continue
            uid = pod.metadata.uid
            arrivals[uid] = self._arrivals.get(uid, elapsed)
            if pod.spec.node_name or (schedule_condition(pod) is not None and uid not in outdated):
                handled.add(uid)
                if uid not in self._handled:
                    self._latest = max(self._latest, arrivals[uid])
            elif not (pod.spec.scheduling_gates or pod.spec.resource_claims or is_over(pod)):
                waiting[uid] = self._since.get(uid, elapsed)
                due = waiting[uid] + self._limit(pod)
                until = due + self._silence_seconds if uid in outdated else inf
                if elapsed < until:
                    late.append((due, until))
        if not handled <= self._handled:
            self._active = elapsed
        self._arrivals, self._since, self._handled = arrivals, waiting, handled | (self._handled & settled)
        late = [one for one in late if one[0] > self._latest]
        if late:
            due = max(min(late)[0], self._active + self._silence_seconds)
            responds = elapsed < due
            self.next_due = due if responds else max(until for _, until in late)
        changed, self.responds = responds is not self.responds, responds
        return changed

    def _limit(self, pod: Pod) -> float:
        provisioned = any(volume.persistent_volume_claim or volume.ephemeral for volume in pod.spec.volumes)
        return self.provisioning_seconds if provisioned else self._silence_seconds


def _age(time: datetime | None, now: float) -> float:
    """Return the seconds since a time; 0 if it is absent, or later because of another clock."""
    return max(0.0, now - time.timestamp()) if time is not None else 0.0


class OutdatedVerdicts:
    """Search for verdicts that kube-scheduler gave while other pods held the room that was planned for the pod.

    When the room is free, kube-scheduler binds the pod or gives another verdict. Until then, it may be provisioning
    volumes, or it has stopped. Verdicts about resources that are not planned are valid: no room was planned in them.
    """

    def __init__(self, gpu_resources: GpuResources) -> None:
        self._planned = frozenset(("cpu", "memory", *gpu_resources))
        self._before: dict[str, str] = {}
        self._present: dict[str, str] = {}
        """Messages about the lack of room by UID of the pod, at the present check."""

    def begin(self) -> None:
        """Begin a check of all pods."""
        self._before, self._present = self._present, {}

    def check(self, pod: Pod, *, is_held: bool) -> bool:
        """Return whether the room of a judged pod has become free since its verdict.

        Args:
            pod: A pod that kube-scheduler finds unschedulable.
            is_held: Whether pods that have to stop are on its planned node.
        """
        uid, message = pod.metadata.uid, unschedulable_message(pod)
        if self._planned.isdisjoint(NO_ROOM.findall(message)) or not (is_held or self._before.get(uid) == message):
            return False
        self._present[uid] = message
        return not is_held


def unschedulable_message(pod: Pod) -> str:
    """Return the message of kube-scheduler for a pod that it cannot place."""
    condition = schedule_condition(pod)
    return condition.message or condition.reason if condition is not None else ""


def other_scheduler(pod: Pod) -> str:
    """Return the name of the scheduler that a webhook has given the pod to; empty if it is ours."""
    name = pod.spec.scheduler_name
    return "" if name == SCHEDULER_NAME else name


def schedule_condition(pod: Pod) -> PodCondition | None:
    """Return the condition with which kube-scheduler says that a pod has no node; None if it has said nothing.

    The API server itself says that a pod is gated, and that condition stays when the gate is removed.
    """
    conditions = (c for c in pod.status.conditions if c.type == "PodScheduled" and c.status == "False")
    return next((c for c in conditions if c.reason != "SchedulingGated"), None)
