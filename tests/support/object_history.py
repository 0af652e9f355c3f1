"""History of some objects while a test runs: all events of their watches, in order."""

import asyncio
import contextlib
import json
import threading
import time
from types import TracebackType
from typing import Any, Self

from support.waiting import WAIT_SECONDS, eventually
from tranche.kube.client.client import ApiClient


def check_gang(events: list[dict[str, Any]], members: int) -> None:
    """Check in a watch that the pods of a gang are created from one plan, without gates, and are all bound."""
    pods = [pod for pod in events if "deletionTimestamp" not in pod["metadata"]]
    assert len({pod["metadata"]["name"] for pod in pods}) == members
    assert len({pod["metadata"]["annotations"]["tranche.dev/plan"] for pod in pods}) == 1
    assert not any(pod["spec"].get("schedulingGates") for pod in pods)
    assert len({pod["metadata"]["name"] for pod in pods if pod["spec"].get("nodeName")}) == members


def revision(found: dict[str, Any]) -> int:
    """Return the revision of etcd that wrote a version: it orders objects of all kinds, as two watches do not."""
    return int(found["metadata"]["resourceVersion"])


class History:
    """Context manager that watches collections from when it is entered."""

    def __init__(self, kubeconfig: str, *paths: str) -> None:
        self._events: dict[str, list[dict[str, Any]]] = {path: [] for path in paths}
        self._known: dict[str, dict[str, tuple[int, bool]]] = {path: {} for path in paths}
        """Revision of the last known change of each object by its UID, and whether the object existed after it."""
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
        try:
            if error is None:
                self._catch_up()
        finally:
            self._loop.call_soon_threadsafe(self._task.cancel)
            self._thread.join()
        assert self._fault is None, self._fault

    @property
    def events(self) -> dict[str, list[dict[str, Any]]]:
        """Objects as they were after each change until now, or until the end of the block, by path.

        Each has the moment when its event arrived (``heard``), also by the clock (``clock``), which continues while a
        machine is halted. A change arrives later than another client may read it, so this waits for the watches.
        """
        if self._thread.is_alive():
            self._catch_up()
        return self._events

    def of(self, path: str, name: str) -> list[dict[str, Any]]:
        """Return the events of the objects with this name."""
        return [one for one in self.events[path] if one["metadata"]["name"] == name]

    def _catch_up(self) -> None:
        """Wait until the watches have shown the present state of the collections, or a later one."""
        for path in self._events:
            request = asyncio.run_coroutine_threadsafe(self._client.request("GET", path), self._loop)
            present = request.result(WAIT_SECONDS)
            eventually(lambda path=path, present=present: self._has(path, present), f"the watch of {path} catches up")  # type: ignore[misc]

    def _has(self, path: str, present: dict[str, Any]) -> bool:
        """Return whether the watch of a collection has shown this state of it, or a later one."""
        assert self._fault is None, self._fault
        now = revision(present)
        listed = {one["metadata"]["uid"]: revision(one) for one in present["items"]}
        known = dict(self._known[path])
        return all(known.get(uid, (0, False))[0] >= at for uid, at in listed.items()) and not any(
            exists and at <= now and uid not in listed for uid, (at, exists) in known.items()
        )

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
            self._client = client
            for path in self._events:
                found = await client.request("GET", path)
                self._known[path].update({one["metadata"]["uid"]: (revision(one), True) for one in found["items"]})
                group.create_task(self._follow(client, path, found["metadata"]["resourceVersion"]))
            self._watching.set()

    async def _follow(self, client: ApiClient, path: str, version: str) -> None:
        async with client.stream(path, {"watch": "true", "resourceVersion": version}, inactivity=600) as lines:
            async for line in lines:
                told = {"heard": time.monotonic(), "clock": time.time()}
                event = json.loads(line)
                found = event["object"]
                self._events[path].append({**found, **told})
                self._known[path][found["metadata"]["uid"]] = revision(found), event["type"] != "DELETED"
