"""Reflector: a local cache of one kind of object, kept up to date by a list and a watch."""

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from tranche.kube.client.client import ApiClient
from tranche.kube.client.errors import ApiError
from tranche.kube.client.watch_outage import WatchOutage

T = TypeVar("T")
Callback = Callable[[str, T | None, T | None], None]
"""Arguments: key, object before the change (None: new), object after it (None: gone)."""

INACTIVITY_SECONDS = 70.0
"""Time without data after which a watch counts as broken, in seconds; bookmarks arrive about every minute."""
WATCH_SECONDS = (240, 480)
"""Range of the random watch duration in seconds; it is random so that clients do not reconnect at the same time."""
FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 10.0
LONGEST_RETRY_AFTER_SECONDS = 60.0
"""Cap of the server's Retry-After, which a proxy in front of it may set to any value."""
MIN_WATCH_SECONDS = 1.0
"""Back off before reopening a watch that lasted less than this number of seconds."""
BURST_SECONDS = 0.005
"""Time spent on events before yielding to the event loop, in seconds."""
BACKLOG = 10_000
"""Maximum number of lines read ahead of processing; beyond it, TCP flow control slows the server down."""

log = logging.getLogger(__name__)


class _Meta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    name: str = ""
    namespace: str = ""
    uid: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class _Head(msgspec.Struct):
    metadata: _Meta


class _List(msgspec.Struct):
    metadata: _Meta
    items: list[msgspec.Raw] | None = None


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Failure(msgspec.Struct):
    code: int = 0
    reason: str = ""
    message: str = ""


_MASK = 2**64 - 1
_HEAD = msgspec.json.Decoder(_Head)
_LIST = msgspec.json.Decoder(_List)
_EVENT = msgspec.json.Decoder(_Event)
_FAILURE = msgspec.json.Decoder(_Failure)


def _ignore() -> None:
    """Do nothing when resource versions have gone back."""


@dataclass(slots=True)
class Stats:
    """Counters of a watch since the start, for metrics."""

    events: int = 0
    """Objects that were added, changed or removed."""
    relists: int = 0
    """Complete lists, including the first one."""
    errors: int = 0
    """Failed requests, objects that could not be read, callbacks that raised."""
    last_data: float = 0.0
    """Time of the last data from the server, bookmarks included, by the reflector's clock."""


class Reflector(Generic[T]):
    """Cache of one collection. `store` is up to date while `run` runs; for one event loop only."""

    def __init__(
        self,
        client: ApiClient,
        path: str,
        decode: Callable[[bytes], T],
        *,
        params: Mapping[str, str | int] | None = None,
        page_size: int = 500,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        inactivity_seconds: float = INACTIVITY_SECONDS,
        restored: Callable[[], None] = _ignore,
        decode_new: Callable[[bytes], T] | None = None,
    ) -> None:
        """Configure a watch; nothing is read before `run`.

        Args:
            client: Client of the API server.
            path: Path of the collection, such as ``/api/v1/pods``.
            decode: Decodes an object from JSON; any exception means that the object cannot be read.
            params: Query parameters, such as selectors.
            page_size: Objects per page of a list.
            clock: Monotonic seconds.
            jitter: Returns a random number in [0, 1).
            sleep: Waits for a number of seconds.
            inactivity_seconds: Time without data after which a watch counts as broken.
            restored: Called when the resource versions have gone back, before all objects are listed again.
            decode_new: Decodes what can be read of an object if `decode` cannot read any known version of it.
        """
        self.store: dict[str, T] = {}
        """Objects by ``namespace/name``; cluster-scoped objects by ``name``."""
        self.stats = Stats()
        self._client = client
        self._path = path
        self._decode = decode
        self._decode_new = decode_new
        self._params = dict(params or {})
        self._page_size = page_size
        self._clock = clock
        self._jitter = jitter
        self._sleep = sleep
        self._inactivity = inactivity_seconds
        self._restored = restored
        self._partial: set[str] = set()
        """Keys of stored objects that `decode` cannot read."""
        self._versions: dict[str, int] = {}
        """UID and resource version of each object, as `_packed` combines them."""
        self._version = ""
        """Resource version at which the next watch starts; empty if a list is required."""
        self._resumes = False
        """Whether the next watch continues an earlier one, which may have ended because etcd was restored."""
        self._paged = True
        self._callbacks: list[Callback[T]] = []
        self._synced = asyncio.Event()
        self._outage = WatchOutage(path)

    @property
    def has_synced(self) -> bool:
        """Whether the first list is complete."""
        return self._synced.is_set()

    @property
    def age(self) -> float:
        """Seconds since the last data from the server; infinite before the first list."""
        return self._clock() - self.stats.last_data if self.has_synced else float("inf")

    async def synced(self) -> None:
        """Wait until the first list is complete."""
        await self._synced.wait()

    def subscribe(self, callback: Callback[T]) -> None:
        """Call `callback` for every object in the store now, and then for every change after it is stored, in order.

        An object that is replaced by another with the same name is reported as deleted and then as new.
        """
        self._callbacks.append(callback)
        for key, held in list(self.store.items()):
            self._call(callback, key, None, held)

    async def run(self) -> None:
        """Follow the API server forever; errors cause a retry."""
        pause = FIRST_PAUSE_SECONDS
        while True:
            began, before = self._clock(), self.stats.last_data
            failed = await self._round()
            if self.stats.last_data > before:
                pause = FIRST_PAUSE_SECONDS
            if failed is None and self._clock() - began >= MIN_WATCH_SECONDS:
                continue
            asked = (failed.retry_after or 0.0) if isinstance(failed, ApiError) else 0.0
            await self._sleep(max(pause * (0.5 + self._jitter()), min(asked, LONGEST_RETRY_AFTER_SECONDS)))
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    async def read(self) -> None:
        """List once, without a watch.

        Raises:
            ApiError: the API server rejects the request.
        """
        await self._list()

    async def _round(self) -> Exception | None:
        """List if required, then watch. Returns the error that ended the watch.

        None if the server ended it normally.
        """
        try:
            if self._version and self._resumes and await self._resume():
                return None
            if not self._version:
                await self._list()
            self._resumes = True
            await self._watch()
        except ApiError as error:
            self.stats.errors += 1
            self._outage.failed(error, self._clock())
            if error.status == 410:
                self._version = ""
            return error
        except Exception as error:
            self.stats.errors += 1
            self._version = ""
            log.exception("%s: the watch failed; restarting it with a list", self._path)
            return error
        return None

    async def _list(self) -> None:
        """List page by page; objects that are on no page are gone."""
        seen: set[str] = set()
        page = _List(_Meta())
        params = {**self._params, **({"limit": self._page_size} if self._paged else {})}
        while True:
            try:
                page = _LIST.decode(await self._client.get(self._path, **params))
            except ApiError as error:
                self._paged = (
                    error.status != 410
                )  # the server no longer has this version of the list: read all objects in one page
                raise
            breath = self._clock()
            for raw in page.items or ():
                seen.add(self._put(bytes(raw), _HEAD.decode(raw).metadata))
                breath = await self._yield_to_loop(breath)
            if not page.metadata.continue_:
                break
            params["continue"] = page.metadata.continue_
        for key in self.store.keys() - seen:
            self._drop(key)
        self._paged = True
        self._version = page.metadata.resource_version
        self.stats.relists += 1
        self.stats.last_data = self._clock()
        self._synced.set()

    async def _resume(self) -> bool:
        """Continue the watch from its last version until it ends; False if a list is required instead.

        A list is required if the resource versions have gone back, as when etcd was restored from a backup: the API
        server accepts a watch from a version in the future, and sends nothing before that is reached. The watch does
        not wait for this check, for which an API server under load takes seconds, and does not end if the check fails.
        """
        watch, check = asyncio.create_task(self._watch()), asyncio.create_task(self._find_lower_version(self._version))
        try:
            await asyncio.wait((watch, check), return_when=asyncio.FIRST_COMPLETED)
            lower = check.result() if check.done() else ""
            if not lower:
                await watch
                return True
        finally:
            for task in (watch, check):
                task.cancel()
            await asyncio.gather(watch, check, return_exceptions=True)
        log.warning(
            "%s: the resource versions have gone back from %s to %s, as when etcd is restored: listing all objects",
            self._path,
            self._version,
            lower,
        )
        self._version = ""
        self._restored()
        return False

    async def _find_lower_version(self, known: str) -> str:
        """Return the present resource version of the collection if it is lower than a known one, otherwise "".

        A request that fails is repeated.
        """
        pause, answer = FIRST_PAUSE_SECONDS, b""
        while not answer:
            try:
                answer = await self._client.get(self._path, **self._params, limit=1)
            except ApiError as error:
                self.stats.errors += 1
                await self._sleep(max(pause, min(error.retry_after or 0.0, LONGEST_RETRY_AFTER_SECONDS)))
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
        page = _LIST.decode(answer)
        present = page.metadata.resource_version
        return present if present.isdecimal() and known.isdecimal() and int(present) < int(known) else ""

    async def _watch(self) -> None:
        """Apply changes until the server ends the watch. Reading does not wait for processing."""
        least, most = WATCH_SECONDS
        params = {
            **self._params,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": int(least + (most - least) * self._jitter()),
        }
        queue: asyncio.Queue[bytes | Exception | None] = asyncio.Queue(BACKLOG)
        async with self._client.stream(self._path, params, inactivity=self._inactivity) as lines:
            self._outage.resumed(self._clock())
            reader = asyncio.create_task(_read(lines, queue))
            try:
                breath = self._clock()
                while line := await queue.get():
                    if isinstance(line, Exception):
                        raise line
                    self._apply(line)
                    breath = await self._yield_to_loop(breath)
            finally:
                reader.cancel()
                await asyncio.gather(reader, return_exceptions=True)

    def _apply(self, line: bytes) -> None:
        event = _EVENT.decode(line)
        self.stats.last_data = self._clock()
        raw = bytes(event.object)
        if event.type == "ERROR":
            failure = _FAILURE.decode(raw)
            raise ApiError(failure.code, failure.reason, failure.message)
        meta = _HEAD.decode(raw).metadata
        if event.type == "DELETED":
            self._drop(_key(meta))
        elif event.type != "BOOKMARK":
            self._put(raw, meta)
        self._version = meta.resource_version

    def _put(self, raw: bytes, meta: _Meta) -> str:
        """Store an object and return its key. If it cannot be read, the last version that could be read stays."""
        key, version = _key(meta), _packed(meta)
        known = self._versions.get(key)
        if known == version:
            return key
        if known is not None and known >> 64 != version >> 64:
            self._drop(key)
        try:
            new = self._decoded(key, raw)
        except Exception as error:  # one object that cannot be decoded must not stop the others
            self.stats.errors += 1
            log.error("%s: %s cannot be read and is ignored: %s", self._path, key, error)
            return key
        old = self.store.get(key)
        self.store[key] = new
        self._versions[key] = version
        self._notify(key, old, new)
        return key

    def _decoded(self, key: str, raw: bytes) -> T:
        try:
            new = self._decode(raw)
        except Exception:
            if self._decode_new is None or (key in self.store and key not in self._partial):
                raise
            new = self._decode_new(raw)
            self._partial.add(key)
        else:
            self._partial.discard(key)
        return new

    def _drop(self, key: str) -> None:
        old = self.store.pop(key, None)
        self._partial.discard(key)
        self._versions.pop(key, None)
        if old is not None:
            self._notify(key, old, None)

    def _notify(self, key: str, old: T | None, new: T | None) -> None:
        self.stats.events += 1
        for callback in self._callbacks:
            self._call(callback, key, old, new)

    def _call(self, callback: Callback[T], key: str, old: T | None, new: T | None) -> None:
        try:
            callback(key, old, new)
        except Exception:
            self.stats.errors += 1
            log.exception("%s: a subscriber failed for %s", self._path, key)

    async def _yield_to_loop(self, since: float) -> float:
        """Yield to the event loop after `BURST_SECONDS` of work; returns the start of the current burst."""
        if self._clock() - since < BURST_SECONDS:
            return since
        await asyncio.sleep(0)
        return self._clock()


def _packed(meta: _Meta) -> int:
    """Pack hashes of UID and resource version: the strings of 50,000 pods take 10 MB."""
    return (hash(meta.uid) & _MASK) << 64 | hash(meta.resource_version) & _MASK


def _key(meta: _Meta) -> str:
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name


async def _read(lines: AsyncIterator[bytes], queue: asyncio.Queue[bytes | Exception | None]) -> None:
    """Move lines into the queue; the last item is the error that ended the stream, or None."""
    end: Exception | None = None
    try:
        async for line in lines:
            await queue.put(line)
    except Exception as error:
        end = error
    await queue.put(end)
