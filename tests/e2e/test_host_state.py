"""Machine after a process with a real node was killed."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from support.waiting import eventually
from tranche_testcluster.node import HostState
from tranche_testcluster.node.reservation import Reservation

STARTS = """
import time
from support import product_images
from support.real_pods import await_phase, container, create_pod
from tranche_testcluster import Cluster
from tranche_testcluster.node import Network, RealNode

images = [product_images.archive("worker")]
with (
    Network() as network,
    Cluster(pod_address=network.address) as cluster,
    RealNode(cluster, network, "real-0", site="edge-a", images=images) as node,
):
    create_pod(cluster, "left", container(), "real-0")
    await_phase(cluster, "left", "Running")
    print(node.pid("kubelet"), flush=True)
    time.sleep(600)
"""
"""Program that runs a pod on a real node until it is killed."""


def namespace_of(process: Path) -> str:
    try:
        return str((process / "ns" / "pid").readlink())
    except OSError:  # it has ended
        return ""


def program_of(process: Path, namespace: str) -> str:
    """Return the program of a process in a process namespace; empty if it is in another one or has ended."""
    try:
        return (process / "comm").read_text().strip() if namespace_of(process) == namespace else ""
    except OSError:
        return ""


def processes_in(namespace: str) -> list[str]:
    """Return the programs of the processes in a process namespace."""
    programs = (program_of(path, namespace) for path in Path("/proc").iterdir() if path.name.isdigit())
    return [program for program in programs if program]


def interfaces() -> set[str]:
    return {path.name for path in Path("/sys/class/net").iterdir()}


def members(groups: Iterable[Path]) -> list[str]:
    """Return the processes in control groups; a group that is removed meanwhile has none."""
    found: list[str] = []
    for file in (file for group in groups for file in group.rglob("cgroup.procs")):
        with contextlib.suppress(OSError):
            found += file.read_text().split()
    return found


def test_killed_process_leaves_no_trace_after_the_next_start() -> None:
    Reservation().close()  # removes what earlier processes have left
    before = HostState.read()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", STARTS], env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            namespace = namespace_of(Path("/proc", process.stdout.readline().strip()))
            running = processes_in(namespace)
            touched = before.changes(HostState.read())
        finally:
            process.kill()
    groups = [Path(line.removeprefix("+cgroups ")) for line in touched if line.startswith("+cgroups ")]
    assert groups
    assert {"containerd", "containerd-shim", "kubelet"} <= set(running)
    eventually(lambda: not processes_in(namespace), "all programs of the node have ended")
    eventually(lambda: not members(groups), "all containers have ended")
    eventually(lambda: interfaces() == before.interfaces, "the kernel has removed the network")
    Reservation().close()
    assert before.changes(HostState.read()) == []
