"""The extender's application with real watches, in a thread with its own event loop."""

import asyncio
import contextlib
import threading
from types import TracebackType
from typing import Any, Self

import httpx2

from support.waiting import WAIT_SECONDS
from tranche.extender.app import create_app
from tranche.extender.bind import add_bind
from tranche.extender.view import View
from tranche.kube.client.client import ApiClient
from tranche.live.informers import Informers
from tranche.metrics.scheduler import Metrics
from tranche.model import Resources
from tranche.runtime.http_server import serve

PROFILE = "tranche-extender-test"
"""Name of the kube-scheduler's component and of its profile."""


class LiveExtender:
    """Extender in a context manager, ready inside."""

    def __init__(self, kubeconfig: str, *, bind: bool = False) -> None:
        self._bind = bind
        self.metrics = Metrics()
        self._kubeconfig = kubeconfig
        self._listening = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), name="extender")
        self._fault: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._listening.wait(WAIT_SECONDS)
        self.client = httpx2.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=WAIT_SECONDS)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.client.close()
        self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join()
        assert self._fault is None

    def scheduler_config(self, ignorable: bool = False) -> dict[str, Any]:
        """Return a KubeSchedulerConfiguration that uses this extender, and fails pods when it does not answer."""
        extender = {
            "urlPrefix": f"http://127.0.0.1:{self.port}",
            "filterVerb": "filter",
            "prioritizeVerb": "prioritize",
            "preemptVerb": "preempt",
            **({"bindVerb": "bind"} if self._bind else {}),
            "weight": 20,
            "nodeCacheCapable": True,
            "ignorable": ignorable,
            "httpTimeout": f"{WAIT_SECONDS:g}s",
        }
        return {"profiles": [{"schedulerName": PROFILE}], "extenders": [extender]}

    def calls(self, verb: str) -> int:
        """Return how often a verb has been answered."""
        labels = {"verb": verb}
        return int(self.metrics.registry.get_sample_value("tranche_extender_request_seconds_count", labels) or 0)

    def plan_seen(self, namespace: str, name: str) -> str:
        """Return term and revision of a job's plan as the extender knows it."""
        job = self._view.jobs.get(f"{namespace}/{name}")
        plan = job.status.plan if job is not None else None
        return f"{plan.term}.{plan.revision}" if plan is not None else ""

    def used(self, node: str) -> Resources:
        """Return what pods use of a node, as the extender knows it."""
        return self._view.reservations.node(node).used

    def pod_runs(self, namespace: str, name: str) -> bool:
        """Return whether the extender knows that a pod runs."""
        pod = self._view.pods.get(f"{namespace}/{name}")
        return pod is not None and pod.status.phase == "Running"

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.ensure_future(self._serve())
        with contextlib.suppress(asyncio.CancelledError):
            try:
                await self._task
            except Exception as error:
                self._fault = error
                self._listening.set()

    async def _serve(self) -> None:
        async with ApiClient.connect(self._kubeconfig) as client:
            watches = Informers(client)
            self._view = View(watches)
            app = create_app(watches, self.metrics, watches.unsynced, view=self._view)
            if self._bind:
                add_bind(app, client, self.metrics)
            async with asyncio.TaskGroup() as group:
                group.create_task(watches.run())
                await watches.synced()
                group.create_task(serve(app, "127.0.0.1", 0, listening=self._listen))

    def _listen(self, port: int) -> None:
        self.port = port
        self._listening.set()
