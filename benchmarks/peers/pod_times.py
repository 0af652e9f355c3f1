"""Times at which a watch saw each pod created, bound, running and ended."""

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tranche.kube.client.client import ApiClient, ApiError

PODS = "/api/v1/namespaces/default/pods"
JOB_LABEL = "batch.kubernetes.io/job-name"
_ENDED = ("Succeeded", "Failed")


class _Metadata(msgspec.Struct, rename="camel"):
    name: str = ""
    resource_version: str = ""
    labels: dict[str, str] = {}


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _Status(msgspec.Struct):
    phase: str = ""


class _Pod(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class _Event(msgspec.Struct):
    type: str
    object: _Pod


_DECODER = msgspec.json.Decoder(_Event)


@dataclass(slots=True)
class Times:
    """Monotonic seconds, or None while it has not happened."""

    job: str
    """Value of the label `JOB_LABEL`; empty without one."""
    created: float
    bound: float | None = None
    running: float | None = None
    ended: float | None = None
    failed: bool = False


@dataclass
class PodTimes:
    """One watch of the pods in the namespace default, which decodes only the fields it needs, to spare the CPU."""

    client: ApiClient
    clock: Callable[[], float] = time.monotonic
    pods: dict[str, Times] = field(default_factory=dict)
    alive: set[str] = field(default_factory=set)
    """Names of the pods that exist."""
    started: int = 0
    """Number of pods that have been Running."""
    ended: int = 0
    """Number of pods that have ended."""
    _on_change: list[Callable[[], None]] = field(default_factory=list)

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Call a function after each change."""
        self._on_change.append(callback)

    async def run(self) -> None:
        """Follow the pods until cancelled; a watch that the API server ends continues after the last event."""
        first: dict[str, Any] = await self.client.request("GET", PODS)
        version = first["metadata"]["resourceVersion"]
        while True:
            params = {"watch": "true", "resourceVersion": version, "allowWatchBookmarks": "true"}
            try:
                async with self.client.stream(PODS, params) as lines:
                    async for line in lines:
                        event = _DECODER.decode(line)
                        version = event.object.metadata.resource_version or version
                        self._note(event)
            except ApiError as error:
                if error.status == 410:
                    raise

    def _note(self, event: _Event) -> None:
        pod, now = event.object, self.clock()
        name = pod.metadata.name
        if event.type == "DELETED":
            self.alive.discard(name)
        elif event.type in ("ADDED", "MODIFIED"):
            self.alive.add(name)
            times = self.pods.setdefault(name, Times(pod.metadata.labels.get(JOB_LABEL, ""), now))
            if pod.spec.node_name and times.bound is None:
                times.bound = now
            if times.running is None and pod.status.phase in ("Running", *_ENDED):
                times.running = now
                self.started += 1
            if times.ended is None and pod.status.phase in _ENDED:
                times.ended, times.failed = now, pod.status.phase == "Failed"
                self.ended += 1
        for callback in self._on_change:
            callback()


async def until(watch: PodTimes, done: Callable[[], bool], limit_seconds: float) -> bool:
    """Wait for a state of the pods; return False if it does not come in time."""
    changed = asyncio.Event()
    watch.subscribe(changed.set)
    try:
        async with asyncio.timeout(limit_seconds):
            while not done():
                changed.clear()
                await changed.wait()
    except TimeoutError:
        return False
    return True


def quantile(values: Iterable[float], share: float) -> float:
    """Return the value at this share of the sorted values, or NaN without values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")
