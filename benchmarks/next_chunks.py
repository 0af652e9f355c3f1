"""Comparison on a real control plane, one slot, short chunks: a pod a chunk, or one pod that requests further chunks.

``python benchmarks/next_chunks.py`` takes about two minutes. kwok's nodes run no containers, so the worker that asks is
simulated here: it sleeps for a chunk, and sends requests with a token of its pod. Times are from the job's creation to
its last chunk in the ledger. A pod's cost here is the control plane alone: no image, no framework, no data loaded.
"""

import argparse
import json
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

from tranche.demo.local_stack import Stack, apply_manifests
from tranche_testcluster import Cluster

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from support.full_stack import System

LONG_SECONDS = 3600.0
WAIT_SECONDS = 600.0


def done(system: System, name: str) -> int:
    """Return the number of chunks in the job's ledger."""
    return int((system.status(name).get("progress", {}).get("chunks") or "0/0").partition("/")[0])


def without(system: System, chunks: int, seconds: float) -> float:
    """Measure with a pod a chunk."""
    began = time.monotonic()
    system.submit("silent", chunks=chunks, seconds=seconds)
    system.until("all chunks are done", lambda: done(system, "silent") == chunks, WAIT_SECONDS)
    took = time.monotonic() - began
    system.delete("silent")
    return took


def asking(system: System, chunks: int, seconds: float) -> float:
    """Measure with one pod; kwok never ends it."""
    began = time.monotonic()
    system.submit("asking", chunks=chunks, seconds=LONG_SECONDS)
    pod = system.until("its worker runs", lambda: running(system), WAIT_SECONDS)
    attempt = int(pod["metadata"]["labels"]["tranche.dev/attempt"])
    url, bearer = f"{system.stack.report_url}/v1/jobs/default/asking/next", token(system, pod)
    mine, fence = [0], attempt
    while mine:
        time.sleep(seconds * len(mine))
        body = {"attempt": attempt, "fence": fence, "durable": {str(chunk): 50 for chunk in mine}}
        request = urllib.request.Request(url, json.dumps(body).encode(), {"Authorization": f"Bearer {bearer}"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            grant = json.load(answer)
        mine, fence = grant["chunks"], grant["fence"]
    took = time.monotonic() - began
    assert done(system, "asking") == chunks - 1, "the last one is counted with the end of its pod"
    system.delete("asking")
    return took


def running(system: System) -> dict[str, Any] | None:
    """Return the worker's pod."""
    return next((pod for pod in system.pods("asking") if pod["status"]["phase"] == "Running"), None)


def token(system: System, pod: dict[str, Any]) -> str:
    """Return a token as the kubelet projects it into the pod."""
    bound = {"apiVersion": "v1", "kind": "Pod", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
    spec = {"audiences": ["tranche.dev"], "expirationSeconds": 3600, "boundObjectRef": bound}
    path = "/api/v1/namespaces/default/serviceaccounts/default/token"
    return str(system.cluster.request("POST", path, {"spec": spec})[1]["status"]["token"])


def main() -> None:
    """Measure both and print the difference."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunks", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=1.0, help="training time of a chunk")
    options = parser.parse_args()
    with Cluster() as cluster:
        apply_manifests(cluster)
        cluster.add_site("edge-a", nodes=1, gpus=1)
        with Stack(cluster) as stack:
            system = System(cluster, stack)
            seconds = {
                measure.__name__: measure(system, options.chunks, options.seconds) for measure in (without, asking)
            }
    trained = options.chunks * options.seconds
    for name, took in seconds.items():
        print(f"{name:8} {took:6.1f} s, {(took - trained) / options.chunks:.2f} s a chunk beside training")
    print(f"{1 - seconds['asking'] / seconds['without']:.0%} shorter: {options.chunks} chunks of {options.seconds:g} s")


if __name__ == "__main__":
    main()
