"""Sites of a test cluster: kwok nodes that share a zone."""

import concurrent.futures
import time
import urllib.parse
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from .client import Client
from .errors import ClusterError
from .workspace import HOST

ZONE = "topology.kubernetes.io/zone"
GPU = "nvidia.com/gpu"
_SILENCED = "tranche-testcluster-silenced"  # holder of the lease of a node that kwok must not manage
_NEVER_SECONDS = 2**31 - 1
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_ASKED, _ANSWERED = "kwok.tranche.dev/asked", "kwok.tranche.dev/answered"
_GONE_SECONDS = 2.0  # between two checks that the awaited nodes still exist
_ANSWER_SECONDS = 0.5  # kwok needs a hundredth of this time
_NUDGED = "kwok.tranche.dev/nudged"
_MERGE = "application/merge-patch+json"
_PARALLEL = 8
_PODS = "/api/v1/namespaces/kube-system/pods"
_ACCOUNT = "/api/v1/namespaces/kube-system/serviceaccounts/default"
_PROBE = "tranche-testcluster-probe"
_PROBE_SECONDS = 20.0
_CONTROL_SECONDS = 3.0  # after a later pod has been started; kwok needs a hundredth of it on an idle machine


def node(site: str, name: str, capacity: Mapping[str, str], labels: Mapping[str, str], port: int) -> dict[str, Any]:
    """Return a Node as a kubelet at this port would have left it: ready, for kwok to go on with."""
    own = {
        ZONE: site,
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "type": "kwok",
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {**own, **labels}},
        "status": {
            "capacity": dict(capacity),
            "allocatable": dict(capacity),
            "addresses": [{"type": "InternalIP", "address": HOST}, {"type": "Hostname", "address": name}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "as created"}],
            "nodeInfo": {"architecture": "amd64", "operatingSystem": "linux", "kubeletVersion": "kwok"},
        },
    }


def create(client: Client, nodes: Sequence[Mapping[str, Any]], seconds: float) -> None:
    """Create nodes and wait at most `seconds` until kwok runs them all.

    Admission taints every new node as not ready. kube-controller-manager would take that away, but needs minutes for
    thousands of nodes.

    Raises:
        ClusterError: A node is refused, or they are not ready in time.
    """
    _each(lambda node: _create(client, node), nodes)
    await_kwok(client, (node["metadata"]["name"] for node in nodes), seconds)


def label(client: Client, names: Sequence[str], labels: Mapping[str, str]) -> None:
    """Set labels of nodes.

    Raises:
        ClusterError: A node is gone, or a label is refused.
    """
    body = {"metadata": {"labels": dict(labels)}}
    _each(lambda name: _expect(client, "PATCH", f"/api/v1/nodes/{name}", body, 200), names)


def remove(client: Client, site: str) -> None:
    """Delete the nodes of a site at once, pods or not, and then their leases.

    kube-controller-manager would delete the leases too, but possibly after a node of the same name has been created;
    `await_kwok` describes what kwok then does.
    """
    selector = urllib.parse.quote(f"{ZONE}={site}")
    nodes = _expect(client, "DELETE", f"/api/v1/nodes?labelSelector={selector}", None, 200)["items"]
    _each(lambda node: client.request("DELETE", f"{_LEASES}/{node['metadata']['name']}"), nodes)


def silence(client: Client, name: str) -> None:
    """Take the node's lease from kwok permanently, so that its heartbeats end and its pods do not change.

    The lease is renewed with that: kube-controller-manager 1.37 remembers its version at the last renewal, and as long
    as the API server has a later one it takes its own cache for stale and marks no node at all
    (NodeControllerLeaseCircuitBreaker).
    """
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": _SILENCED, "leaseDurationSeconds": _NEVER_SECONDS, "renewTime": now}
    _expect(client, "PATCH", f"{_LEASES}/{name}", {"spec": spec}, 200)
    while _answers(client, name):  # until kwok has noticed
        pass


def respects_leases(client: Client, silenced: str) -> bool:
    """Return whether kwok leaves pods alone on nodes whose lease it does not hold.

    kwok 0.8.0 does so only after every second start: it starts its controllers in the random order of a Go map
    (controller.go, ``range c.conf.LocalStages``), and pods that come before nodes bypass leases. The test uses a
    pod on the silenced node, and then one on a node that kwok manages, if there is any: it starts the second only after
    it has seen both.

    Raises:
        ClusterError: kwok starts neither, or kube-controller-manager creates no account for them.
    """
    deadline = time.monotonic() + _PROBE_SECONDS
    while client.request("GET", _ACCOUNT)[0] == 404:  # a cluster is ready with the account of another namespace
        if time.monotonic() > deadline:
            raise ClusterError(f"there is no {_ACCOUNT}")
        time.sleep(0.05)
    probe, control = f"{_PODS}/{_PROBE}", f"{_PODS}/{_PROBE}-control"
    managed = [lease["metadata"]["name"] for lease in _leases(client) if lease["spec"]["holderIdentity"] != _SILENCED]
    pods = [(probe, silenced), *((control, node) for node in managed[:1])]
    for path, where in pods:
        containers = [{"name": "probe", "image": "probe"}]
        body = {"metadata": {"name": path.rpartition("/")[2]}, "spec": {"nodeName": where, "containers": containers}}
        _expect(client, "POST", _PODS, body, 201)
    deadline = time.monotonic() + _PROBE_SECONDS
    while managed and _is_pending(client, control):
        if time.monotonic() > deadline:
            raise ClusterError(f"kwok starts no pod on {managed[0]}")
        time.sleep(0.02)
    probe_deadline = time.monotonic() + _CONTROL_SECONDS
    while (respects := _is_pending(client, probe)) and time.monotonic() < probe_deadline:
        time.sleep(0.05)
    for path, _ in pods:
        _expect(client, "DELETE", f"{path}?gracePeriodSeconds=0", None, 200)
    return respects


def release(client: Client, name: str | None = None) -> list[str]:
    """Remove the lease of a silenced node, or, without a name, those that an earlier kwok held; return the nodes.

    kwok takes over a node without a lease at its next check, within a quarter of the lease's time.
    """
    if name is not None:
        _expect(client, "DELETE", f"{_LEASES}/{name}", None, 200)
        return [name]
    orphans = [lease["metadata"]["name"] for lease in _leases(client) if lease["spec"]["holderIdentity"] != _SILENCED]
    _each(lambda orphan: client.request("DELETE", f"{_LEASES}/{orphan}"), orphans)
    return orphans


def await_kwok(client: Client, names: Iterable[str], seconds: float) -> None:
    """Wait at most `seconds` until kwok manages all these nodes.

    It does so when its own cache has seen the leases that it took. The cache sees them in their order, so the node of
    the last one is tested. A node that has been deleted meanwhile, as an autoscaler may do, is not waited for.

    A lease whose owner is an earlier node of the same name does not count, and is deleted: kwok keeps the owner when it
    renews such a lease, and the garbage collector deletes the lease later. Until kwok takes it again, a quarter of the
    lease's time, it drops every event of a pod on that node, and no later event repeats what was dropped.

    Raises:
        ClusterError: kwok does not manage them in time.
    """
    awaited = set(names)
    deadline = time.monotonic() + seconds
    next_list = time.monotonic()
    owners: dict[str, str] = {}
    while awaited:
        begin = time.monotonic()
        if begin >= next_list:
            nodes = _expect(client, "GET", "/api/v1/nodes", None, 200)["items"]
            owners = {node["metadata"]["name"]: node["metadata"]["uid"] for node in nodes}
            awaited &= owners.keys()
            next_list = begin + _GONE_SECONDS
        leases = [lease["metadata"] for lease in _leases(client) if lease["metadata"]["name"] in awaited]
        stale_leases = [
            lease
            for lease in leases
            if any(owner["uid"] != owners[lease["name"]] for owner in lease.get("ownerReferences", ()))
        ]
        _each(lambda lease: _delete_lease(client, lease), stale_leases)
        if len(leases) - len(stale_leases) == len(awaited) and leases:
            last = max(leases, key=lambda metadata: int(metadata["resourceVersion"]))
            if _answers(client, last["name"]):
                return
        if begin > deadline:
            missing = len(awaited) - len(leases) + len(stale_leases)
            raise ClusterError(f"{missing} of {len(awaited)} nodes not ready after {seconds:.0f} s")
        time.sleep(max(0.05, time.monotonic() - begin))  # lists of thousands of nodes take half of the time at most


def nudge(client: Client, names: Iterable[str]) -> None:
    """Touch the pods of nodes that kwok has taken over.

    It lists them when it takes the lease, but drops what comes before its own cache has seen that lease.
    """
    node_names, stamp = set(names), str(time.time_ns())
    pods = _expect(client, "GET", "/api/v1/pods?resourceVersion=0", None, 200)["items"] if node_names else []
    stuck = [
        f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
        for pod in pods
        if pod["spec"].get("nodeName") in node_names
        and (pod["status"]["phase"] in ("Pending", "Running") or pod["metadata"].get("deletionGracePeriodSeconds"))
    ]
    patch = {"metadata": {"annotations": {_NUDGED: stamp}}}
    _each(lambda path: client.request("PATCH", path, patch, _MERGE), stuck)  # some are gone by now


def _answers(client: Client, name: str) -> bool:
    """Return whether kwok manages a node, by an annotation that one of its stages answers."""
    stamp, path = str(time.time_ns()), f"/api/v1/nodes/{name}"
    if client.request("PATCH", path, {"metadata": {"annotations": {_ASKED: stamp}}}, _MERGE)[0] == 404:
        return False
    deadline = time.monotonic() + _ANSWER_SECONDS
    while time.monotonic() < deadline:
        status, answer = client.request("GET", path)
        conditions = answer["status"]["conditions"] if status == 200 else ()
        if any(condition["type"] == _ANSWERED and condition["message"] == stamp for condition in conditions):
            return True
        time.sleep(0.01)
    return False


def _is_pending(client: Client, pod: str) -> bool:
    return bool(_expect(client, "GET", pod, None, 200)["status"]["phase"] == "Pending")


def _delete_lease(client: Client, metadata: Mapping[str, Any]) -> None:
    """Delete the lease with this metadata, but not a successor of the same name."""
    client.request("DELETE", f"{_LEASES}/{metadata['name']}", {"preconditions": {"uid": metadata["uid"]}})


def _leases(client: Client) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = _expect(client, "GET", _LEASES, None, 200)["items"]
    return items


def _create(client: Client, manifest: Mapping[str, Any]) -> None:
    _expect(client, "POST", "/api/v1/nodes", manifest, 201)
    path = f"/api/v1/nodes/{manifest['metadata']['name']}"
    _expect(client, "PATCH", path, {"spec": {"taints": None}}, 200)


def _expect(client: Client, method: str, path: str, body: Any, expected: int) -> Any:
    kind = _MERGE if method == "PATCH" else "application/json"
    status, answer = client.request(method, path, body, kind)
    if status != expected:
        message = answer.get("message") if isinstance(answer, dict) else answer
        raise ClusterError(f"{method} {path}: {status} {message}")
    return answer


def _each(action: Callable[[Any], object], items: Sequence[Any]) -> None:
    with concurrent.futures.ThreadPoolExecutor(_PARALLEL) as pool:
        for _ in pool.map(action, items):
            pass
