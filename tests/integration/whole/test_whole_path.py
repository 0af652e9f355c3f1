"""From kubectl apply to Succeeded, on a real control plane."""

from support.full_stack import System, is_running


def test_applied_job_is_planned_bound_and_succeeds(system: System) -> None:
    system.submit("first", chunks=3, seconds=0.5)
    status = system.until_phase("first", "Succeeded")
    assert status["progress"]["chunks"] == "3/3"
    assert status["progress"]["done"] == "0-2"
    assert status["completionTime"]
    conditions = {c["type"]: c["status"] for c in status["conditions"]}
    assert conditions["Planned"] == "True"
    assert conditions["Complete"] == "True"
    pods = system.pods("first")
    assert all(p["spec"]["schedulerName"] == "tranche" and p["spec"]["nodeName"] for p in pods)
    system.until("its pods are let go", lambda: not any(p["metadata"].get("finalizers") for p in system.pods("first")))
    system.delete("first")


def test_job_with_less_work_preempts_and_victim_resumes_later(
    system: System,
) -> None:
    system.submit("large", chunks=2, seconds=60.0, zone="edge-a")
    system.until_running("large", 2)
    system.until_trained("large", 2)
    system.submit("small", chunks=1, seconds=1.0, zone="edge-a")
    waiting = system.until("a victim", lambda: system.status("large")["progress"]["preemptions"])
    assert waiting == 1
    partial = system.status("large")["progress"]["running"]
    assert partial
    assert 1 <= partial[0]["batches"] < 50
    system.until_phase("small", "Succeeded")
    status = system.complete("large")
    assert status["progress"]["chunks"] == "2/2"
    resumed = [p for p in system.pods("large") if "tranche.dev/attempt" in p["metadata"]["labels"]]
    environment = [
        {e["name"]: e.get("value") for e in p["spec"]["containers"][0]["env"]}.get("TRANCHE_RESUME") for p in resumed
    ]
    assert any(environment), "no attempt received a point to resume from"
    ended = {a["reason"] for a in status["progress"]["attempts"]}
    assert "Preempted" in ended
    system.delete("large", "small")


def test_two_jobs_whose_short_lists_overlap_both_run(system: System) -> None:
    system.submit("wide", gpus=8, seconds=300.0)
    system.submit("narrow", chunks=2, seconds=300.0)
    system.until("both run", lambda: {system.status(j).get("phase") for j in ("wide", "narrow")} == {"Running"})
    system.complete("wide", "narrow")
    system.delete("wide", "narrow")


def test_waiting_job_has_planned_times_and_an_explanation(
    system: System,
) -> None:
    system.submit("ahead", chunks=2, seconds=600.0, zone="edge-a")
    system.until_phase("ahead", "Running")
    system.submit("behind", chunks=2, seconds=3000.0, zone="edge-a")
    plan = system.until(
        "a plan",
        lambda: system.status("behind").get("plan", {}).get("estimatedCompletion") and system.status("behind")["plan"],
    )
    assert plan["explanation"].startswith("waits for 1 GPU at ")
    assert "behind default/ahead, which has less work left" in plan["explanation"]
    assert plan["estimatedStart"] < plan["estimatedCompletion"]

    def agree() -> bool:
        """The read API has a watch of its own, and the time in the explanation is renewed each second."""
        return bool(system.read("jobs/default/behind")["explanation"] == system.status("behind")["plan"]["explanation"])

    system.until("the read API says the same", agree)
    assert not system.pods("behind")
    system.delete("behind", "ahead")


def running_pods(system: System, job: str) -> set[str]:
    """The names of the pods of a job that run."""
    return {pod["metadata"]["name"] for pod in system.pods(job) if is_running(pod)}


def test_planner_killed_and_restarted_loses_nothing(system: System) -> None:
    system.submit("steady", chunks=6, seconds=300.0, zone="edge-a")
    for _ in range(3):
        system.until("both workers run", lambda: len(running_pods(system, "steady")) == 2)
        system.stack.kill("scheduler")
        system.end_workers("steady")
        system.stack.start_scheduler()
    status = system.until_phase("steady", "Succeeded")
    assert status["progress"]["chunks"] == "6/6"
    assert status["progress"]["preemptions"] == 0
    assert status["progress"]["failures"] == 0
    assert status["plan"]["attempts"] == 6, "a restart trained a chunk twice"
    system.delete("steady")


def test_operator_killed_and_restarted_loses_nothing(system: System) -> None:
    system.submit("patient", chunks=6, seconds=300.0, zone="edge-a")
    system.until("both workers run", lambda: len(running_pods(system, "patient")) == 2)
    system.stack.kill("operator")
    system.end_workers("patient")
    assert not running_pods(system, "patient"), "all workers have ended while no operator runs"
    system.stack.start_operator()
    status = system.complete("patient")
    assert status["plan"]["attempts"] == 6
    system.delete("patient")


def test_failing_job_fails_at_backoff_limit_and_others_run_on(system: System) -> None:
    system.submit("broken", seconds=0.2, exit_code=3, runPolicy={"backoffLimit": 0})
    system.submit("sound", seconds=0.5)
    status = system.until_phase("broken", "Failed")
    assert status["progress"]["attempts"][-1]["exitCode"] == 3
    assert "backoffLimit" in status["plan"]["explanation"]
    system.until_phase("sound", "Succeeded")
    system.delete("broken", "sound")


def test_pods_of_a_job_after_its_deadline_are_counted(system: System) -> None:
    system.submit("late", chunks=2, seconds=600.0, zone="edge-a")
    system.until("both workers run", lambda: len(running_pods(system, "late")) == 2)
    system.change("late", {"runPolicy": {"activeDeadlineSeconds": 5}})  # at first, it could pass before the pods run
    system.until_phase("late", "Failed")
    system.until("a plan without pods", lambda: system.status("late")["plan"].get("workers") == [])
    status = system.status("late")
    assert status["plan"]["explanation"].startswith("failed: not done 5 s after its first pod was created")
    assert "estimatedCompletion" not in status["plan"]
    assert sum(status["progress"]["attemptTotals"].values()) == 2
    assert sum(site["gpuSeconds"] for site in status["progress"]["sites"]) > 0
    system.delete("late")


def test_deleting_a_running_job_removes_its_pods_and_service(system: System) -> None:
    system.submit("doomed", chunks=2, seconds=60.0)
    system.until_phase("doomed", "Running")
    system.delete("doomed")
    path = "/api/v1/namespaces/default/services/doomed"
    system.until("service gone", lambda: system.cluster.request("GET", path)[0] == 404)


def test_a_suspended_job_stops_and_goes_on_where_it_was(system: System) -> None:
    system.submit("pausing", chunks=1, seconds=60.0)
    system.until_phase("pausing", "Running")
    system.until_trained("pausing", 2)
    path = "/apis/tranche.dev/v1alpha1/namespaces/default/trainingjobs/pausing"
    kind = "application/merge-patch+json"
    system.cluster.request("PATCH", path, {"spec": {"suspend": True}}, kind)
    system.until_phase("pausing", "Suspended")
    (saved,) = system.until("its work is counted", lambda: system.status("pausing")["progress"].get("running"))
    assert saved["batches"] >= 1
    system.cluster.request("PATCH", path, {"spec": {"suspend": False}}, kind)
    system.complete("pausing")
    system.delete("pausing")


def planned_reason(system: System, job: str) -> str:
    """Return the reason of the condition Planned; empty before it is written."""
    conditions = system.status(job).get("conditions", ())
    return next((str(one["reason"]) for one in conditions if one["type"] == "Planned"), "")


def test_unreadable_job_stops_and_goes_on_when_it_is_corrected(system: System) -> None:
    system.submit("bloated", chunks=1, seconds=600.0)
    path = "/apis/tranche.dev/v1alpha1/namespaces/default/trainingjobs/bloated"
    kind = "application/merge-patch+json"
    system.until_phase("bloated", "Running")
    for text, is_readable in (("x" * 300_000, False), (None, True)):
        template = {"metadata": {"annotations": {"note": text}}}
        status, _ = system.cluster.request("PATCH", path, {"spec": {"workers": {"template": template}}}, kind)
        assert status == 200
        system.until("it is followed", lambda ok=is_readable: any(map(is_running, system.pods("bloated"))) is ok)  # type: ignore[misc]
        reason = "Planned" if is_readable else "InvalidSpec"
        system.until(f"the condition says {reason}", lambda due=reason: planned_reason(system, "bloated") == due)  # type: ignore[misc]
    assert system.status("bloated")["progress"]["failures"] == 0
    system.delete("bloated")


def test_job_with_a_value_of_newer_definitions_is_named(system: System) -> None:
    """The definitions may be newer than the programs, as while the programs are rolled back."""
    definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/trainingjobs.tranche.dev"
    fields = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/preemption/properties/policy/enum"
    path = "/apis/tranche.dev/v1alpha1/namespaces/default/trainingjobs/late"
    system.submit("late", suspend=True)
    system.until("it is planned", lambda: system.status("late").get("plan"))

    def has_policy(policy: str, **spec: bool) -> bool:
        body = {"spec": {"preemption": {"policy": policy}, **spec}}
        return system.cluster.request("PATCH", path, body, "application/merge-patch+json")[0] == 200

    added = [{"op": "add", "path": f"{fields}/-", "value": "AtNight"}]
    assert system.cluster.request("PATCH", definition, added, "application/json-patch+json")[0] == 200
    system.until("the API server accepts the value", lambda: has_policy("AtNight"))
    system.until("the condition names it", lambda: planned_reason(system, "late") == "InvalidSpec")
    assert has_policy("Never", suspend=False)
    system.until_phase("late", "Succeeded")
    removed = [{"op": "remove", "path": f"{fields}/3"}]
    assert system.cluster.request("PATCH", definition, removed, "application/json-patch+json")[0] == 200
    system.delete("late")


def test_status_that_older_definitions_do_not_know_is_refused(system: System) -> None:
    """The plan of the job could never be written, so that it must hold no GPUs, and the condition must say why."""
    definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/trainingjobs.tranche.dev"
    schema = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties/plan/properties"
    job, patch = "/apis/tranche.dev/v1alpha1/namespaces/default/trainingjobs/served", "application/json-patch+json"
    spec = {"containers": [{"name": "s", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}
    system.submit("served", seconds=60.0, suspend=True, parameterServers={"template": {"spec": spec}})
    system.until("it is planned", lambda: system.status("served").get("plan"))
    versions = system.cluster.request("GET", definition)[1]["spec"]["versions"]
    plan = versions[0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]["plan"]
    removed = [{"op": "remove", "path": f"{schema}/parameterServers"}]
    assert system.cluster.request("PATCH", definition, removed, patch)[0] == 200

    def is_known() -> bool:
        status = {"plan": system.status("served")["plan"] | {"parameterServers": []}}
        body = {"apiVersion": "tranche.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "served"}}
        path = f"{job}/status?fieldManager=test&force=true&dryRun=All"
        return system.cluster.request("PATCH", path, body | {"status": status}, "application/apply-patch+yaml")[0] < 300

    system.until("the API server does not know the field", lambda: not is_known())
    system.change("served", {"suspend": False})
    system.until("the condition says so", lambda: planned_reason(system, "served") == "StatusRejected")
    added = [{"op": "add", "path": f"{schema}/parameterServers", "value": plan["properties"]["parameterServers"]}]
    assert system.cluster.request("PATCH", definition, added, patch)[0] == 200
    system.until("the API server knows the field", is_known)
    system.delete("served")
