"""From kubectl apply to Succeeded, on a real control plane."""

from support.full_stack import Whole, is_running


def test_applied_job_is_planned_bound_and_succeeds(whole: Whole) -> None:
    whole.submit("first", chunks=3, seconds=0.5)
    status = whole.until_phase("first", "Succeeded")
    assert status["progress"]["chunks"] == "3/3"
    assert status["progress"]["done"] == "0-2"
    assert status["completionTime"]
    conditions = {c["type"]: c["status"] for c in status["conditions"]}
    assert conditions["Planned"] == "True"
    assert conditions["Complete"] == "True"
    pods = whole.pods("first")
    assert all(p["spec"]["schedulerName"] == "tranche" and p["spec"]["nodeName"] for p in pods)
    whole.until("its pods are let go", lambda: not any(p["metadata"].get("finalizers") for p in whole.pods("first")))
    whole.delete("first")


def test_job_with_less_work_preempts_and_victim_resumes_later(
    whole: Whole,
) -> None:
    whole.submit("large", chunks=2, seconds=60.0, zone="edge-a")
    whole.until_running("large", 2)
    whole.until_trained("large", 2)
    whole.submit("small", chunks=1, seconds=1.0, zone="edge-a")
    waiting = whole.until("a victim", lambda: whole.status("large")["progress"]["preemptions"])
    assert waiting == 1
    partial = whole.status("large")["progress"]["running"]
    assert partial
    assert 1 <= partial[0]["batches"] < 50
    whole.until_phase("small", "Succeeded")
    status = whole.complete("large")
    assert status["progress"]["chunks"] == "2/2"
    resumed = [p for p in whole.pods("large") if "tranche.dev/attempt" in p["metadata"]["labels"]]
    environment = [
        {e["name"]: e.get("value") for e in p["spec"]["containers"][0]["env"]}.get("TRANCHE_RESUME") for p in resumed
    ]
    assert any(environment), "no attempt received a point to resume from"
    ended = {a["reason"] for a in status["progress"]["attempts"]}
    assert "Preempted" in ended
    whole.delete("large", "small")


def test_two_jobs_whose_short_lists_overlap_both_run(whole: Whole) -> None:
    whole.submit("wide", gpus=8, seconds=300.0)
    whole.submit("narrow", chunks=2, seconds=300.0)
    whole.until("both run", lambda: {whole.status(j).get("phase") for j in ("wide", "narrow")} == {"Running"})
    whole.complete("wide", "narrow")
    whole.delete("wide", "narrow")


def test_waiting_job_has_planned_times_and_an_explanation(
    whole: Whole,
) -> None:
    whole.submit("ahead", chunks=2, seconds=600.0, zone="edge-a")
    whole.until_phase("ahead", "Running")
    whole.submit("behind", chunks=2, seconds=3000.0, zone="edge-a")
    plan = whole.until(
        "a plan",
        lambda: whole.status("behind").get("plan", {}).get("estimatedCompletion") and whole.status("behind")["plan"],
    )
    assert plan["explanation"].startswith("waits for 1 GPU at ")
    assert "behind default/ahead, which has less work left" in plan["explanation"]
    assert plan["estimatedStart"] < plan["estimatedCompletion"]

    def agree() -> bool:
        """The read API has a watch of its own, and the time in the explanation is renewed each second."""
        return bool(whole.read("jobs/default/behind")["explanation"] == whole.status("behind")["plan"]["explanation"])

    whole.until("the read API says the same", agree)
    assert not whole.pods("behind")
    whole.delete("behind", "ahead")


def running_pods(whole: Whole, job: str) -> set[str]:
    """The names of the pods of a job that run."""
    return {pod["metadata"]["name"] for pod in whole.pods(job) if is_running(pod)}


def test_planner_killed_and_restarted_loses_nothing(whole: Whole) -> None:
    whole.submit("steady", chunks=6, seconds=300.0, zone="edge-a")
    for _ in range(3):
        whole.until("both workers run", lambda: len(running_pods(whole, "steady")) == 2)
        whole.stack.kill("scheduler")
        whole.end_workers("steady")
        whole.stack.start_scheduler()
    status = whole.until_phase("steady", "Succeeded")
    assert status["progress"]["chunks"] == "6/6"
    assert status["progress"]["preemptions"] == 0
    assert status["progress"]["failures"] == 0
    assert status["plan"]["attempts"] == 6, "a restart trained a chunk twice"
    whole.delete("steady")


def test_operator_killed_and_restarted_loses_nothing(whole: Whole) -> None:
    whole.submit("patient", chunks=6, seconds=3.0, zone="edge-a")
    whole.until_phase("patient", "Running")
    whole.stack.kill("operator")
    whole.until("all workers end while no operator runs", lambda: not running_pods(whole, "patient"))
    whole.stack.start_operator()
    status = whole.until_phase("patient", "Succeeded")
    assert status["plan"]["attempts"] == 6
    whole.delete("patient")


def test_failing_job_fails_at_backoff_limit_and_others_run_on(whole: Whole) -> None:
    whole.submit("broken", seconds=0.2, exit_code=3, runPolicy={"backoffLimit": 0})
    whole.submit("sound", seconds=0.5)
    status = whole.until_phase("broken", "Failed")
    assert status["progress"]["attempts"][-1]["exitCode"] == 3
    assert "backoffLimit" in status["plan"]["explanation"]
    whole.until_phase("sound", "Succeeded")
    whole.delete("broken", "sound")


def test_pods_of_a_job_after_its_deadline_are_counted(whole: Whole) -> None:
    whole.submit("late", chunks=2, seconds=600.0, zone="edge-a")
    whole.until("both workers run", lambda: len(running_pods(whole, "late")) == 2)
    whole.change("late", {"runPolicy": {"activeDeadlineSeconds": 5}})  # at first, it could pass before the pods run
    whole.until_phase("late", "Failed")
    whole.until("a plan without pods", lambda: whole.status("late")["plan"].get("workers") == [])
    status = whole.status("late")
    assert status["plan"]["explanation"].startswith("failed: not done 5 s after its first pod was created")
    assert "estimatedCompletion" not in status["plan"]
    assert sum(status["progress"]["attemptTotals"].values()) == 2
    assert sum(site["gpuSeconds"] for site in status["progress"]["sites"]) > 0
    whole.delete("late")


def test_deleting_a_running_job_removes_its_pods_and_service(whole: Whole) -> None:
    whole.submit("doomed", chunks=2, seconds=60.0)
    whole.until_phase("doomed", "Running")
    whole.delete("doomed")
    path = "/api/v1/namespaces/default/services/doomed"
    whole.until("service gone", lambda: whole.cluster.request("GET", path)[0] == 404)


def test_a_suspended_job_stops_and_goes_on_where_it_was(whole: Whole) -> None:
    whole.submit("pausing", chunks=1, seconds=60.0)
    whole.until_phase("pausing", "Running")
    whole.until_trained("pausing", 2)
    path = "/apis/tranche.dev/v1alpha1/namespaces/default/trainingjobs/pausing"
    kind = "application/merge-patch+json"
    whole.cluster.request("PATCH", path, {"spec": {"suspend": True}}, kind)
    whole.until_phase("pausing", "Suspended")
    (saved,) = whole.until("its work is counted", lambda: whole.status("pausing")["progress"].get("running"))
    assert saved["batches"] >= 1
    whole.cluster.request("PATCH", path, {"spec": {"suspend": False}}, kind)
    whole.complete("pausing")
    whole.delete("pausing")


def planned_reason(whole: Whole, job: str) -> str:
    """Return the reason of the condition Planned."""
    (planned,) = [one for one in whole.status(job)["conditions"] if one["type"] == "Planned"]
    return str(planned["reason"])


def test_unreadable_job_stops_and_goes_on_when_it_is_corrected(whole: Whole) -> None:
    whole.submit("bloated", chunks=1, seconds=600.0)
    path = "/apis/tranche.dev/v1alpha1/namespaces/default/trainingjobs/bloated"
    kind = "application/merge-patch+json"
    whole.until_phase("bloated", "Running")
    for text, is_readable in (("x" * 300_000, False), (None, True)):
        template = {"metadata": {"annotations": {"note": text}}}
        status, _ = whole.cluster.request("PATCH", path, {"spec": {"workers": {"template": template}}}, kind)
        assert status == 200
        whole.until("it is followed", lambda ok=is_readable: any(map(is_running, whole.pods("bloated"))) is ok)  # type: ignore[misc]
        reason = "Planned" if is_readable else "InvalidSpec"
        whole.until(f"the condition says {reason}", lambda due=reason: planned_reason(whole, "bloated") == due)  # type: ignore[misc]
    assert whole.status("bloated")["progress"]["failures"] == 0
    whole.delete("bloated")
