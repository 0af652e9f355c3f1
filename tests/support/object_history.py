"""History of some objects while a test runs: all events of their watches, in order."""

import asyncio
import contextlib
import json
import threading
import time
from types import TracebackType
from typing import Any, Self

from support.waiting import WAIT_SECONDS
from tranche.kube.client.client import ApiClient


def check_gang(events: list[dict[str, Any]], members: int) -> None:
    """Check in a watch that the pods of a gang are created from one plan, without gates, and are all bound."""
    pods = [pod for pod in events if "deletionTimestamp" not in pod["metadata"]]
    assert len({pod["metadata"]["name"] for pod in pods}) == members
    assert len({pod["metadata"]["annotations"]["tranche.dev/plan"] for pod in pods}) == 1
    assert not any(pod["spec"].get("schedulingGates") for pod in pods)
    assert len({pod["metadata"]["name"] for pod in pods if pod["spec"].get("nodeName")}) == members


class History:
    """Context manager that watches collections from when it is entered."""

    def __init__(self, kubeconfig: str, *paths: str) -> None:
        self.events: dict[str, list[dict[str, Any]]] = {path: [] for path in paths}
        """Objects as they were after each change, by path, with the moment when the event arrived (``heard``), also by
        the clock (``clock``), which continues while a machine is halted."""
        self._kubeconfig = kubeconfig
        self._watching = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), name="history")
        self._fault: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._watching.wait(WAIT_SECONDS)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join()
        assert self._fault is None, self._fault

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.ensure_future(self._watch())
        with contextlib.suppress(asyncio.CancelledError):
            try:
                await self._task
            except Exception as error:
                self._fault = error
                self._watching.set()
        await asyncio.sleep(0.1)  # aiohttp closes TLS connections a few turns of the loop after their session

    async def _watch(self) -> None:
        async with ApiClient.connect(self._kubeconfig) as client, asyncio.TaskGroup() as group:
            for path, events in self.events.items():
                version = (await client.request("GET", path))["metadata"]["resourceVersion"]
                group.create_task(self._follow(client, path, version, events))
            self._watching.set()

    async def _follow(self, client: ApiClient, path: str, version: str, events: list[dict[str, Any]]) -> None:
        async with client.stream(path, {"watch": "true", "resourceVersion": version}, inactivity=600) as lines:
            async for line in lines:
                told = {"heard": time.monotonic(), "clock": time.time()}
                events.append({**json.loads(line)["object"], **told})
