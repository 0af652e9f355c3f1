"""Stand-in for the API server in benchmarks: a process that serves lists, watches, statuses, Leases and reviews.

It keeps encoded objects and answers at once, so that the figures are those of tranche. Its tokens equal the names of
pods, which are their UIDs as well.
"""

import asyncio
import contextlib
import json
import time
from datetime import UTC, datetime
from itertools import pairwise
from multiprocessing.connection import Connection
from typing import Any

import msgspec
from aiohttp import web

GPU = "nvidia.com/gpu"
GPUS, CHUNKS = 8, 115
BOOKMARK_SECONDS = 20.0
TEMPLATE = {"spec": {"containers": [{"name": "t", "resources": {"requests": {GPU: "1", "cpu": "1"}}}]}}
JOB_GROUP = "/apis/tranche.dev/v1alpha1"
PATHS = {
    "/api/v1/pods": "Pod",
    "/api/v1/nodes": "Node",
    "/api/v1/resourcequotas": "ResourceQuota",
    f"{JOB_GROUP}/trainingjobs": "TrainingJob",
    f"{JOB_GROUP}/sites": "Site",
}
PADDING = {"kubectl.kubernetes.io/restartedAt": "2026-11-22T10:00:00Z", "checksum/config": "0123456789abcdef" * 4}
encode = msgspec.json.encode


class Collection:
    """Objects of one kind, encoded, and the watches of them."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.watchers: set[asyncio.Queue[bytes]] = set()

    def put(self, key: str, manifest: dict[str, Any], version: int) -> None:
        """Store an object, and send it to the watches."""
        manifest["metadata"]["resourceVersion"] = str(version)
        raw = encode(manifest)
        kind = b"MODIFIED" if key in self.objects else b"ADDED"
        self.objects[key] = raw
        for queue in self.watchers:
            queue.put_nowait(b'{"type":"' + kind + b'","object":' + raw + b"}\n")


class StandIn:
    """API server with a cluster in it."""

    def __init__(self) -> None:
        self.version = 1
        self.collections = {kind: Collection() for kind in PATHS.values()}
        self.lease: dict[str, Any] = {}
        self.renewals: list[float] = []
        self.written = 0
        self.reviews = 0

    def put(self, manifest: dict[str, Any]) -> None:
        """Create or change an object."""
        self.version += 1
        metadata = manifest["metadata"]
        key = f"{metadata['namespace']}/{metadata['name']}" if "namespace" in metadata else metadata["name"]
        self.collections[manifest["kind"]].put(key, manifest, self.version)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer any request."""
        path = request.path
        if path in PATHS:
            collection = self.collections[PATHS[path]]
            return (
                await self._watch(request, collection) if "watch" in request.query else self._list(request, collection)
            )
        if "/leases" in path:
            return await self._lease(request)
        if path.endswith("tokenreviews"):
            return await self._review(request)
        if path.endswith("/status"):
            return await self._status(request)
        return web.json_response({"message": path}, status=404)

    def _list(self, request: web.Request, collection: Collection) -> web.Response:
        items = list(collection.objects.values())
        begin, limit = int(request.query.get("continue", 0)), int(request.query.get("limit", 500))
        more = str(begin + limit) if begin + limit < len(items) else ""
        head = encode({"resourceVersion": str(self.version), "continue": more})
        body = b'{"metadata":' + head + b',"items":[' + b",".join(items[begin : begin + limit]) + b"]}"
        return web.Response(body=body, content_type="application/json")

    async def _watch(self, request: web.Request, collection: Collection) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        collection.watchers.add(queue)
        with contextlib.suppress(ConnectionResetError):
            while True:
                try:
                    async with asyncio.timeout(BOOKMARK_SECONDS):
                        lines = [await queue.get()]
                except TimeoutError:
                    lines = [b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"%d"}}}\n' % self.version]
                while not queue.empty():
                    lines.append(queue.get_nowait())
                await response.write(b"".join(lines))
        collection.watchers.discard(queue)
        return response

    async def _lease(self, request: web.Request) -> web.Response:
        if request.method == "GET" and not self.lease:
            return web.json_response({"code": 404}, status=404)
        if request.method != "GET":
            self.lease = await request.json()
            self.version += 1
            self.lease["metadata"]["resourceVersion"] = str(self.version)
            self.renewals.append(time.monotonic())
        return web.json_response(self.lease)

    async def _review(self, request: web.Request) -> web.Response:
        self.reviews += 1
        spec = (await request.json())["spec"]
        name = spec["token"]
        if f"ns/{name}" not in self.collections["Pod"].objects:
            return web.json_response({"status": {"authenticated": False}})
        extra = {f"authentication.kubernetes.io/pod-{field}": [name] for field in ("name", "uid")}
        user = {"username": "system:serviceaccount:ns:default", "extra": extra}
        status = {"authenticated": True, "audiences": spec.get("audiences", []), "user": user}
        return web.json_response({"status": status})

    async def _status(self, request: web.Request) -> web.Response:
        body = msgspec.json.decode(await request.read())
        parts = request.path.split("/")
        kind, key = ("TrainingJob", f"ns/{parts[-2]}") if "trainingjobs" in parts else ("Site", parts[-2])
        raw = self.collections[kind].objects.get(key)
        if raw is None:
            return web.json_response({"code": 404}, status=404)
        manifest = msgspec.json.decode(raw)
        manifest["status"] = {**manifest.get("status", {}), **body["status"]}
        self.put(manifest)
        self.written += 1
        return web.json_response({"kind": kind, "metadata": manifest["metadata"]})


def job(name: str, created: float, status: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return a job of 115 chunks of ten minutes; with a window on a node of its own if it runs."""
    at = datetime.fromtimestamp(created, UTC).isoformat()
    return {
        "kind": "TrainingJob",
        "apiVersion": "tranche.dev/v1alpha1",
        "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}", "creationTimestamp": at, "generation": 1},
        "spec": {
            "data": {"chunks": CHUNKS, "batchesPerChunk": 1000},
            "model": {"stepTime": "600ms"},
            "workers": {"maxReplicas": CHUNKS if name.startswith("new") else 1, "template": TEMPLATE},
        },
        "status": status or {},
    }


def objects(now: float, nodes: int, sites: int, running: int, pods: int) -> list[dict[str, Any]]:
    """Return the cluster: sites, nodes, running jobs with their pods, and pods of others up to `pods`."""
    manifests: list[dict[str, Any]] = []
    for site in range(sites):
        spec = {"nodeSelector": {"site": f"site-{site}"}}
        manifests.append({"kind": "Site", "metadata": {"name": f"site-{site}", "uid": f"s{site}"}, "spec": spec})
    for number in range(nodes):
        offered = {"cpu": "64", "memory": "256Gi", "pods": "110", GPU: str(GPUS)}
        labels = {"site": f"site-{number % sites}", "kubernetes.io/hostname": f"n{number}", "kubernetes.io/os": "linux"}
        metadata = {"name": f"n{number}", "uid": f"n{number}", "labels": labels}
        status = {"allocatable": offered, "conditions": [{"type": "Ready", "status": "True"}]}
        manifests.append({"kind": "Node", "metadata": metadata, "status": status})
    for number in range(running):
        name, node = f"j{number}", f"n{number}"
        window = {"index": 0, "attempt": 1, "site": f"site-{number % sites}", "node": node, "chunks": [0]}
        plan = {"term": 1, "revision": 1, "observedGeneration": 1, "attempts": 1, "workers": [window]}
        manifests.append(job(name, now - 600.0, {"plan": plan, "phase": "Running"}))
        manifests.append(worker(name, node, now))
    manifests += [stranger(number, f"n{number % nodes}") for number in range(pods - running)]
    return manifests


def worker(name: str, node: str, now: float) -> dict[str, Any]:
    """Return the worker of a running job."""
    labels = {"job": name, "role": "worker", "index": "0", "attempt": "1"}
    owner = {"apiVersion": "tranche.dev/v1alpha1", "kind": "TrainingJob", "uid": f"uid-{name}", "controller": True}
    started = {"running": {"startedAt": datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}}
    metadata = {"name": f"{name}-worker-0-1", "namespace": "ns", "uid": f"{name}-worker-0-1"}
    return {
        "kind": "Pod",
        "metadata": {
            **metadata,
            "labels": {f"tranche.dev/{key}": value for key, value in labels.items()},
            "ownerReferences": [owner],
        },
        "spec": {"nodeName": node, **TEMPLATE["spec"]},
        "status": {"phase": "Running", "containerStatuses": [{"name": "t", "state": started}]},
    }


def stranger(number: int, node: str) -> dict[str, Any]:
    """Return a pod of another workload, with the fields that a real one has."""
    name = f"web-{number % 977}-7f9c8d6b5-{number:05x}"
    requests = {"cpu": f"{100 + 50 * (number % 5)}m", "memory": f"{256 * (1 + number % 4)}Mi"}
    container = {"name": "web", "image": "registry.example.com/web:1.2.3", "resources": {"requests": requests}}
    metadata = {
        "name": name,
        "namespace": f"team-{number % 50}",
        "uid": f"0b6c1d2e-aaaa-4bbb-8ccc-{number:012d}",
        "creationTimestamp": "2026-11-22T10:00:00Z",
        "labels": {"app": f"web-{number % 977}", "pod-template-hash": "7f9c8d6b5"},
        "annotations": PADDING,
    }
    conditions = [
        {"type": condition, "status": "True", "lastTransitionTime": "2026-11-22T10:00:05Z"}
        for condition in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    ]
    status = {"phase": "Running", "conditions": conditions, "startTime": "2026-11-22T10:00:01Z"}
    spec = {"nodeName": node, "schedulerName": "default-scheduler", "priority": 0, "containers": [container]}
    return {"kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def kubeconfig(port: int) -> str:
    """Return a kubeconfig for the stand-in."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "u", "user": {"token": "administrator"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }
    return json.dumps(content)


def serve(pipe: Connection, *size: int) -> None:
    """Run the stand-in's process: send its port, then answer each request over the pipe.

    A request is a number: the arrivals of jobs per second from now on. The answer has arrivals, statuses and reviews
    so far, and the longest time between two renewals of the Lease since the last request.

    Args:
        pipe: Pipe to the benchmark.
        size: Numbers of nodes, sites, running jobs and pods.
    """
    asyncio.run(_serve(pipe, *size))


async def _serve(pipe: Connection, *size: int) -> None:
    stand_in = StandIn()
    for manifest in objects(time.time(), *size):
        stand_in.put(manifest)
    app = web.Application(client_max_size=64 * 2**20)
    app.router.add_route("*", "/{path:.*}", stand_in.handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    pipe.send(runner.addresses[0][1])
    rate, arrived, due = 0.0, 0, time.monotonic()
    while True:
        await asyncio.sleep(0.02)
        while rate and time.monotonic() >= due:
            stand_in.put(job(f"new-{arrived}", time.time()))
            arrived, due = arrived + 1, due + 1 / rate
        if pipe.poll():
            rate, due = float(pipe.recv()), time.monotonic()
            moments = [*stand_in.renewals, time.monotonic()]
            longest = max((b - a for a, b in pairwise(moments)), default=0.0)
            stand_in.renewals = stand_in.renewals[-1:]
            pipe.send((arrived, stand_in.written, stand_in.reviews, longest))
