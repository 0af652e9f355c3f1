"""History of all states of a cluster's objects, read from etcd, where no watch can miss or repeat one.

The API server must store JSON and keep all revisions: start the cluster with ``extra_flags={"kube-apiserver": FLAGS}``.
"""

import base64
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .gateway import encoded, post

FLAGS = ("--storage-media-type=application/json", "--etcd-compaction-interval=0")
"""Required flags of kube-apiserver."""
_ROOT = "/registry/"
_MARK = f"{_ROOT}tranche-testcluster/mark"


@dataclass(frozen=True, slots=True)
class Change:
    """Single write."""

    revision: int
    """Revision of the whole cluster, which increases."""
    resource: str
    """Name of the resource in etcd: ``pods``, ``minions`` (nodes), ``services/specs``, ``tranche.dev/trainingjobs``."""
    key: str
    """``namespace/name``, or the name."""
    before: dict[str, Any] | None
    """Object before the write; None if it did not exist."""
    after: dict[str, Any] | None
    """Object after the write; None if it was deleted."""


def read(port: int, resources: Sequence[str]) -> list[Change]:
    """Return all changes of these resources so far, in their order.

    Args:
        port: Port of etcd.
        resources: Names as in `Change.resource`.

    Raises:
        OSError: etcd does not answer.
        ValueError: An object is not stored as JSON.
    """
    objects: dict[tuple[str, str], dict[str, Any]] = {}
    changes: list[Change] = []
    for revision, path, value in _writes(port):
        resource = next((name for name in resources if path.startswith(f"{_ROOT}{name}/")), None)
        if resource is None:
            continue
        key = path.removeprefix(f"{_ROOT}{resource}/")
        after = None if value is None else json.loads(value)
        changes.append(Change(revision, resource, key, objects.pop((resource, key), None), after))
        if after is not None:
            objects[resource, key] = after
    return changes


def sizes(port: int, resource: str) -> dict[str, int]:
    """Return the bytes of the values that etcd stores for the objects of a resource, by ``namespace/name`` or name.

    Args:
        port: Port of etcd.
        resource: Name as in `Change.resource`.

    Raises:
        OSError: etcd does not answer.
    """
    first = f"{_ROOT}{resource}/"
    after = first[:-1] + chr(ord("/") + 1)
    with post(port, "kv/range", {"key": encoded(first), "range_end": encoded(after)}) as answer:
        entries = json.load(answer).get("kvs", ())
    return {
        base64.b64decode(entry["key"]).decode().removeprefix(first): len(base64.b64decode(entry["value"]))
        for entry in entries
    }


def _writes(port: int) -> Iterator[tuple[int, str, bytes | None]]:
    """Yield revision, path and value (None: deleted) of all writes up to now: up to a mark that is written first."""
    post(port, "kv/put", {"key": encoded(_MARK), "value": encoded("here")}).close()
    last = json.load(post(port, "kv/range", {"key": encoded(_MARK)}))["kvs"][0]["mod_revision"]
    create = {"key": encoded(_ROOT), "range_end": encoded(_ROOT[:-1] + chr(ord("/") + 1)), "start_revision": "1"}
    with post(port, "watch", {"create_request": {**create, "fragment": True}}) as stream:
        for line in stream:
            for event in json.loads(line)["result"].get("events", ()):
                entry = event["kv"]
                path, revision = base64.b64decode(entry["key"]).decode(), entry["mod_revision"]
                gone = event.get("type") == "DELETE"
                yield int(revision), path, None if gone else base64.b64decode(entry.get("value", ""))
                if revision == last:
                    return
