"""A budget that does not let a victim be stopped: the victim goes on, and the other job is planned elsewhere."""

from support.full_stack import Whole

BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


def protect(whole: Whole, job: str) -> None:
    selector = {"matchLabels": {"tranche.dev/job": job}}
    spec = {"minAvailable": 1, "selector": selector}
    assert whole.cluster.request("POST", BUDGETS, {"metadata": {"name": job}, "spec": spec})[0] == 201
    status = f"{BUDGETS}/{job}"
    whole.until("a budget", lambda: whole.cluster.request("GET", status)[1].get("status", {}).get("currentHealthy"))


def condition(whole: Whole, job: str) -> dict[str, str]:
    conditions = whole.status(job).get("conditions", ())
    return next((c for c in conditions if c["type"] == "EvictionsRefused"), {})


def test_victim_protected_by_budget_runs_on_and_another_stops(whole: Whole) -> None:
    whole.submit("protected", seconds=60.0, zone="edge-a")  # the most work left: the first whom anybody would stop
    whole.until_phase("protected", "Running")
    protect(whole, "protected")
    whole.submit("open", seconds=30.0, zone="edge-a")
    whole.until_phase("open", "Running")
    (pod,) = whole.pods("protected")
    try:
        whole.submit("small", seconds=1.0, zone="edge-a")
        told = whole.until("a condition", lambda: condition(whole, "protected"))
        assert told["reason"] == "DisruptionBudget"
        assert "protected-worker-0-1" in told["message"]
        status = whole.until_phase("small", "Succeeded")
        assert status["plan"]["attempts"] == 2, "the first window was given up at once, not after a time-out"
        assert whole.status("open")["progress"]["preemptions"] == 1
        (same,) = whole.pods("protected")
        assert same["metadata"]["uid"] == pod["metadata"]["uid"]
        assert "deletionTimestamp" not in same["metadata"]
        assert whole.status("protected")["progress"]["preemptions"] == 0
        whole.until("it is taken back", lambda: condition(whole, "protected")["status"] == "False")
    finally:
        whole.cluster.request("DELETE", f"{BUDGETS}/protected")
        whole.delete("protected", "open", "small")
