"""Workers that ask for their next chunks on a real control plane: one slot, one pod after which none is started.

kwok's nodes run no containers, so the test asks on the pods' behalf, and ends them.
"""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from support.full_stack import ANSWER_SECONDS, System, full_stack
from support.waiting import changes

BATCHES = 50
PODS = "/api/v1/namespaces/default/pods?labelSelector=tranche.dev/job=cats"
LONG = 600.0


@pytest.fixture(scope="module")
def system() -> Iterator[System]:
    with full_stack({"edge-a": {"nodes": 1, "gpus": 1}}) as made:
        yield made


@pytest.fixture
def cats(system: System) -> Iterator[dict[str, Any]]:
    """The pod of a job of four long chunks, on the only slot."""
    system.submit("cats", chunks=4, seconds=LONG, preemption={"policy": "AtChunkEnd"})
    yield system.until("its first worker runs", lambda: running(system))
    system.delete("cats", "dogs")


def running(system: System) -> dict[str, Any] | None:
    pods = [pod for pod in system.pods("cats") if pod["status"]["phase"] == "Running"]
    return pods[0] if pods else None


def window(system: System) -> dict[str, Any]:
    (planned,) = system.status("cats")["plan"]["workers"]
    return dict(planned)


def granted(system: System) -> tuple[Any, ...]:
    """Return the rights of its pod, without the estimates of its start and end, which may change."""
    planned = window(system)
    return planned["attempt"], planned["chunks"], planned.get("renewed")


def ask(
    system: System,
    pod: dict[str, Any],
    fence: int,
    *done: int,
    bearer: str | None = None,
    job: str = "cats",
    **body: Any,
) -> tuple[int, dict[str, Any]]:
    """Send the request of a worker that has trained these chunks; return the answer."""
    attempt = int(pod["metadata"]["labels"]["tranche.dev/attempt"])
    body = {"attempt": attempt, "fence": fence, "durable": {str(chunk): BATCHES for chunk in done}, **body}
    url = f"{system.stack.report_url}/v1/jobs/default/{job}/next"
    headers = {"Authorization": f"Bearer {bearer or token(system, pod)}"}
    try:
        request = urllib.request.Request(url, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as got:
            return got.status, json.load(got)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def ask_when_known(system: System, pod: dict[str, Any], *words: int, **more: Any) -> tuple[int, dict[str, Any]]:
    """Ask until the replica's own watch has shown the pod; return the answer."""
    known = lambda: (answer := ask(system, pod, *words, **more))[0] != 503 and answer  # noqa: E731
    found: tuple[int, dict[str, Any]] = system.until("the replica knows the pod", known)
    return found


def token(system: System, pod: dict[str, Any]) -> str:
    """As the kubelet projects it into the pod."""
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    bound = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}
    spec = {"audiences": ["tranche.dev"], "expirationSeconds": 600, "boundObjectRef": bound}
    path = "/api/v1/namespaces/default/serviceaccounts/default/token"
    status, answer = system.cluster.request("POST", path, {"spec": spec})
    assert status == 201, answer
    return str(answer["status"]["token"])


def uids(system: System) -> list[str]:
    return [pod["metadata"]["uid"] for pod in system.pods("cats")]


def test_pod_renews_chunks_until_its_slot_goes_to_another_job(system: System, cats: dict[str, Any]) -> None:
    first = window(system)
    status, given = ask_when_known(system, cats, first["attempt"], 0)
    assert (status, given["chunks"]) == (200, [1])
    planned = window(system)
    assert (planned["chunks"], planned["attempt"], planned["renewed"]) == ([1], first["attempt"], given["fence"])
    assert system.status("cats")["progress"]["done"] == "0"
    assert ask(system, cats, first["attempt"], 0) == (200, given), "an answer that was lost is given again"

    system.stack.kill("scheduler")
    system.stack.start_scheduler()
    after = system.until("the next one answers", lambda: answered(system, cats, first["attempt"], 0))
    assert after == given, "also by another planner"

    last = system.until("the rate limit of the pod allows it", lambda: answered(system, cats, given["fence"], 1))
    assert last["chunks"] == [2]
    system.submit("dogs", seconds=1.0)
    system.until("dogs wait", lambda: system.status("dogs").get("phase") == "Waiting")
    seen = [event["object"]["metadata"] for event in changes(system.cluster, PODS, 3)]
    assert all(one["uid"] == cats["metadata"]["uid"] and "deletionTimestamp" not in one for one in seen)
    assert uids(system) == [cats["metadata"]["uid"]]
    assert "deletionTimestamp" not in system.pods("cats")[0]["metadata"]
    way = system.until("it is answered", lambda: answered(system, cats, last["fence"], 2))
    assert way["chunks"] == [], "at the end of its chunk it makes way: one is left"
    system.end_worker(cats, json.dumps({"2": BATCHES}))
    system.until_phase("dogs", "Succeeded")
    ledger = system.status("cats")["progress"]
    assert (ledger["done"], [one["attempt"] for one in ledger["attempts"]]) == ("0-2", [first["attempt"]])


def answered(system: System, pod: dict[str, Any], fence: int, *done: int) -> dict[str, Any] | None:
    try:
        status, given = ask(system, pod, fence, *done)
    except OSError:
        return None
    return given if status == 200 else None


def test_renewal_by_other_or_ended_attempt_is_refused(system: System, cats: dict[str, Any]) -> None:
    attempt, bearer = window(system)["attempt"], token(system, cats)
    before = granted(system)
    refused = {
        "no token": (ask(system, cats, attempt, 0, bearer="nonsense")[0], 401),
        "for another job": (ask_when_known(system, cats, attempt, 0, job="dogs")[0], 403),
        "of an older attempt": (ask(system, cats, attempt, 0, attempt=0)[0], 409),
        "malformed": (ask(system, cats, attempt, 0, durable={"x": 1})[0], 422),
    }
    assert {what: got for what, (got, _) in refused.items()} == {what: due for what, (_, due) in refused.items()}
    assert granted(system) == before
    path = f"/api/v1/namespaces/default/pods/{cats['metadata']['name']}"
    system.cluster.request("DELETE", path, {"gracePeriodSeconds": 0})
    system.until(
        "its successor runs",
        lambda: (pod := running(system)) and pod["metadata"]["uid"] not in (cats["metadata"]["uid"],),
    )
    assert ask(system, cats, attempt, 0, bearer=bearer)[0] in (401, 403), "its pod is gone"
