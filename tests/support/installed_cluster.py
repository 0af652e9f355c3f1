"""Cluster that has the CRDs, priority classes and RBAC of tranche from its start."""

import fcntl
import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from tranche.demo.local_stack import apply_manifests, await_kinds, manifests
from tranche_testcluster import Cluster, ensure

_STATES = Path(__file__).resolve().parents[2] / "build/cluster-states"


@contextmanager
def installed_cluster(**options: Any) -> Iterator[Cluster]:
    """Start a cluster from the state of one in which the manifests have been applied.

    That takes half of the time, of the CPU too, and nearly every module that uses a control plane needs such a cluster.

    Args:
        options: Arguments of `Cluster`.
    """
    with Cluster(initial_state=_state(), **options) as cluster:
        await_kinds(cluster)
        yield cluster


@cache
def _state() -> Path:
    """Return the saved state for these manifests and binaries, which one process of this checkout makes."""
    folder = _STATES / _fingerprint()
    _STATES.mkdir(parents=True, exist_ok=True)
    with (_STATES / "making.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=_STATES) as scratch:
                made = Path(scratch) / "etcd"
                with Cluster() as cluster:
                    apply_manifests(cluster)
                    cluster.save_state(made)
                made.rename(folder)
    return folder


def _fingerprint() -> str:
    """Return a digest of what the state depends on."""
    server = ensure("kube-apiserver")["kube-apiserver"]
    digest = hashlib.sha256(f"{server} {server.stat().st_size} {server.stat().st_mtime_ns}".encode())
    for file in sorted(manifests().rglob("*.yaml")):
        digest.update(os.fsencode(file.relative_to(manifests())) + file.read_bytes())
    return digest.hexdigest()[:16]
