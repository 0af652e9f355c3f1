"""CPU time of processes and requests to the API server, as differences between two moments."""

import os
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from tranche_testcluster import Cluster

_TICKS = os.sysconf("SC_CLK_TCK")
_COMPONENTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kwok")
_SAMPLE = re.compile(r"^apiserver_request_total\{(.*)\} (\S+)$")
_LABEL = re.compile(r'(\w+)="([^"]*)"')


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process and its descendants that run, in seconds."""
    fields = {int(path.name): _stat(path) for path in Path("/proc").iterdir() if path.name.isdecimal()}
    children: dict[int, list[int]] = {}
    for child, stat in fields.items():
        if stat:
            children.setdefault(int(stat[1]), []).append(child)
    pending, total = [pid], 0.0
    while pending:
        process = pending.pop()
        if process_stat := fields.get(process):
            total += (int(process_stat[11]) + int(process_stat[12])) / _TICKS
        pending += children.get(process, [])
    return total


def descendants(pid: int) -> dict[int, list[str]]:
    """Return the command lines of the processes below this one that run, by id."""
    parents = {
        int(path.name): int(stat[1])
        for path in Path("/proc").iterdir()
        if path.name.isdecimal() and (stat := _stat(path))
    }
    commands: dict[int, list[str]] = {}
    pending = [pid]
    while pending:
        parent = pending.pop()
        for child in (process for process, above in parents.items() if above == parent):
            pending.append(child)
            try:
                commands[child] = Path(f"/proc/{child}/cmdline").read_text().split("\0")
            except OSError:  # it has ended
                continue
    return commands


def peak_bytes(pid: int) -> int:
    """Return the largest resident memory of a process since its start, without its children."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("VmHWM:")))


def _stat(process: Path) -> list[str]:
    """Return the fields of /proc/PID/stat after the command's name; empty if the process has ended."""
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def cpu_of(cluster: Cluster, others: Mapping[str, int]) -> dict[str, float]:
    """Return the CPU seconds so far of the control plane's and other processes, by name."""
    pids = {name: cluster.pid(name) for name in _COMPONENTS} | dict(others) | {"benchmark": os.getpid()}
    own = {name: cpu_seconds(pid) for name, pid in pids.items() if name != "benchmark"}
    times = os.times()
    return own | {"benchmark": times.user + times.system}


def requests_of(cluster: Cluster) -> Counter[str]:
    """Return the number of requests that the API server has answered, by verb and resource."""
    counts: Counter[str] = Counter()
    for line in str(cluster.request("GET", "/metrics")[1]).splitlines():
        match = _SAMPLE.match(line)
        if not match:
            continue
        labels = dict(_LABEL.findall(match[1]))
        if labels["verb"] in ("WATCH", "CONNECT") or not labels["resource"]:
            continue
        target = labels["resource"] + (f"/{labels['subresource']}" if labels["subresource"] else "")
        note = " (dry run)" if labels.get("dry_run") else ""
        refused = f" -> {labels['code']}" if not labels["code"].startswith("2") else ""
        counts[f"{labels['verb']} {target}{note}{refused}"] += int(float(match[2]))
    return counts


def difference(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """Return what has been added, largest first, without what has not changed."""
    added = {name: value - before.get(name, 0) for name, value in after.items()}
    return dict(sorted(((name, value) for name, value in added.items() if value > 0), key=lambda item: -item[1]))
