"""Stand-in for a cluster autoscaler, as a program: a site whose kwok nodes come and go with the pods that request it.

``python -m tranche_testcluster.autoscaler --site cloud ...`` reads pods and nodes a few times a second and carries out
the decisions of `scaling`. Every action is one line on standard output.
"""

import argparse
import asyncio
import ssl
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import site
from .client import Client
from .errors import ClusterError
from .scaling import AUTOSCALED, Autoscaler, Scaling
from .workspace import HOST

POLL_SECONDS = 0.25
_READY_SECONDS = 60.0
_PODS = "/api/v1/pods?resourceVersion=0&fieldSelector=status.phase%21%3DSucceeded,status.phase%21%3DFailed"
_MERGE = "application/merge-patch+json"


class Program:
    """Loop that reads the cluster and carries out the autoscaler's decisions."""

    def __init__(self, client: Client, scaling: Scaling, kubelet_port: int) -> None:
        """Store the settings, without requests.

        Args:
            client: Client of the API server.
            scaling: Nodes to create.
            kubelet_port: Port on which kwok answers for the nodes.
        """
        self._client = client
        self._autoscaler = Autoscaler(scaling)
        self._port = kubelet_port
        self.connected = asyncio.Event()
        """Event that is set at the first answer of the API server."""
        self._silent = False

    async def run(self) -> None:
        """Run until cancelled; failed requests to the API server are repeated."""
        while True:
            try:
                await self._poll()
            except (OSError, ClusterError) as error:
                if not self._silent:
                    _print_line(f"no answer, trying again: {error}")
                self._silent = True
            else:
                if self._silent:
                    _print_line("the API server answers again")
                self._silent = False
                self.connected.set()
            pause = min(POLL_SECONDS, self._autoscaler.next_due() - time.monotonic())
            await asyncio.sleep(max(0.0, pause) if not self._silent else POLL_SECONDS)

    async def _poll(self) -> None:
        scaling = self._autoscaler.scaling
        selector = f"{AUTOSCALED}%3D{scaling.site}"
        pods, nodes = await asyncio.gather(self._items(_PODS), self._items(f"/api/v1/nodes?labelSelector={selector}"))
        decisions = self._autoscaler.decide(pods, nodes, time.monotonic())
        for message in decisions.messages:
            _print_line(message)
        for name in decisions.uncordon:
            await self._request("PATCH", name, {"spec": {"unschedulable": None}})
        for name in decisions.cordon:
            await self._request("PATCH", name, {"spec": {"unschedulable": True}})
        for name in decisions.delete:
            await self._delete(name)
        if decisions.create:
            await asyncio.to_thread(self._create, decisions.create)
            _print_line(f"{', '.join(decisions.create)}: ready")

    def _create(self, names: Sequence[str]) -> None:
        """Create nodes; they get the site's labels last, when they are ready for pods.

        kube-scheduler retries its waiting pods with every change of a node that matches them, and each failure delays
        their next attempt.
        """
        scaling, labels = self._autoscaler.scaling, self._autoscaler.labels
        nodes = [site.node("", name, scaling.capacity, {AUTOSCALED: scaling.site}, self._port) for name in names]
        site.create(self._client, nodes, _READY_SECONDS)
        site.label(self._client, names, labels)

    async def _delete(self, name: str) -> None:
        """Delete a node unless a pod was bound to it a moment ago, which the API server's cache may not show yet."""
        bound = await self._items(f"/api/v1/pods?fieldSelector=spec.nodeName%3D{name}")
        if all(pod["status"]["phase"] in ("Succeeded", "Failed") for pod in bound):
            await self._request("DELETE", name, None)
            _print_line(f"node {name} is deleted: no pod has come for {self._autoscaler.scaling.idle_seconds:g} s")

    async def _items(self, path: str) -> list[dict[str, Any]]:
        status, answer = await asyncio.to_thread(self._client.request, "GET", path)
        if status != 200:
            raise ClusterError(f"GET {path}: {status}")
        items: list[dict[str, Any]] = answer["items"]
        return items

    async def _request(self, method: str, name: str, body: Any) -> None:
        path = f"/api/v1/nodes/{name}"
        status, answer = await asyncio.to_thread(self._client.request, method, path, body, _MERGE)
        if status not in (200, 404):
            raise ClusterError(f"{method} {path}: {status} {answer}")


async def serve_health(program: Program, port: int) -> asyncio.Server:
    """Answer every request on the port with 200 once the API server has answered, and with 503 before."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            status = "200 OK" if program.connected.is_set() else "503 Service Unavailable"
            writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
            await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            pass
        finally:
            writer.close()

    return await asyncio.start_server(answer, HOST, port)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run until killed."""
    parser = argparse.ArgumentParser(prog="python -m tranche_testcluster.autoscaler", description=__doc__)
    parser.add_argument("--server-port", type=int, required=True, help="port of the API server on this machine")
    parser.add_argument("--kubelet-port", type=int, required=True, help="port of kwok")
    parser.add_argument("--health-port", type=int, required=True)
    parser.add_argument("--certificate-authority", type=Path, required=True)
    parser.add_argument("--client-certificate", type=Path, required=True)
    parser.add_argument("--client-key", type=Path, required=True)
    parser.add_argument("--site", required=True)
    parser.add_argument(
        "--label", action="append", default=[], metavar="KEY=VALUE", help="label of each node; repeatable"
    )
    parser.add_argument("--gpus", type=int, default=Scaling.gpus)
    parser.add_argument("--cpu", default=Scaling.cpu)
    parser.add_argument("--memory", default=Scaling.memory)
    parser.add_argument("--start-seconds", type=float, default=Scaling.start_seconds)
    parser.add_argument("--idle-seconds", type=float, default=Scaling.idle_seconds)
    parser.add_argument("--most-nodes", type=int, default=Scaling.most_nodes)
    options = parser.parse_args(arguments)
    labels = dict(label.partition("=")[::2] for label in options.label)
    try:
        scaling = Scaling(
            options.site,
            labels,
            options.gpus,
            options.cpu,
            options.memory,
            options.start_seconds,
            options.idle_seconds,
            options.most_nodes,
        )
    except ValueError as error:
        parser.error(str(error))
    context = ssl.create_default_context(cafile=str(options.certificate_authority))
    context.load_cert_chain(options.client_certificate, options.client_key)
    asyncio.run(
        _serve(Program(Client(options.server_port, context), scaling, options.kubelet_port), options.health_port)
    )


async def _serve(program: Program, port: int) -> None:
    server = await serve_health(program, port)
    async with server:
        await program.run()


def _print_line(text: str) -> None:
    stamp = time.strftime("%H:%M:%S")
    sys.stdout.write(f"{stamp} {text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
