"""Single actions on a real API server, also late ones: what is not as it was read is left alone."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from support.operator_lab import SITE, TEMPLATE, Lab, server, window
from tranche.kube.api.resources import SiteSpec, TrainingJob
from tranche.kube.client.client import ApiClient, ApiError
from tranche_operator.execute.event_recorder import EventRecorder
from tranche_operator.execute.executor import (
    BUSY_CREATED_SECONDS,
    CHANGED_SECONDS,
    CREATED_SECONDS,
    MAX_CHANGES,
    PASSING_SECONDS,
    ActionExecutor,
)
from tranche_operator.execute.reader import Reader
from tranche_operator.execute.reconciler_cache import ReconcilerCache
from tranche_operator.manifests import pod as manifests
from tranche_operator.reconcile.actions import (
    Action,
    CheckTemplate,
    CreatePod,
    CreateService,
    DeleteJob,
    DeletePod,
    EmitEvent,
    EvictPod,
    ReleasePod,
    UngatePod,
    WriteStatus,
)
from tranche_operator.reconcile.observed import Observed, PodView, ServiceState
from tranche_operator.reconcile.status import NO_TIMES, PodCounts, compute_phase, new_status
from tranche_operator.settings import Settings

SETTINGS = Settings()
WRONG = "00000000-0000-0000-0000-000000000000"


def now() -> datetime:
    return datetime.now(UTC)


def with_client(lab: Lab, use: Callable[[ApiClient], Awaitable[Any]], *, admin: bool = False) -> Any:
    async def main() -> Any:
        account = lab.cluster.service_account_kubeconfig("tranche-system", "tranche-operator")
        kubeconfig = lab.cluster.kubeconfig if admin else account
        async with ApiClient.connect(str(kubeconfig)) as client:
            return await use(client)

    return asyncio.run(main())


def observe(lab: Lab, cache: ReconcilerCache | None = None) -> Observed:
    found = with_client(lab, lambda client: Reader(client, cache or ReconcilerCache()).observe(f"{lab.namespace}/cats"))
    assert isinstance(found, Observed)
    return found


def apply(
    lab: Lab, *actions: Action, seen: Observed | None = None, cache: ReconcilerCache | None = None
) -> float | None:
    seen, cache = seen or observe(lab), cache or ReconcilerCache()

    def use(client: ApiClient) -> Awaitable[float | None]:
        return ActionExecutor(client, cache, EventRecorder(client, now), SETTINGS, now).execute(seen, list(actions))

    delay_seconds: float | None = with_client(lab, use)
    return delay_seconds


def creations(lab: Lab, *, gated: bool = False) -> list[CreatePod]:
    """Return the creations of all planned workers of job cats, without or with the gate of a refused gang."""
    job = observe(lab).job
    assert job is not None
    assert job.status.plan is not None
    pods = [manifests.worker_pod(job, one, SETTINGS) for one in job.status.plan.workers]
    return [CreatePod(manifests.with_gate(pod) if gated else pod, "w", SITE) for pod in pods]


def make_pod(lab: Lab, windows: int = 1, *, gated: bool = False, **spec: Any) -> PodView:
    """Job cats with some windows, and the pod of the first."""
    lab.create(**spec)
    lab.plan(*(window(index, index + 1) for index in range(windows)))
    assert apply(lab, creations(lab, gated=gated)[0]) == CREATED_SECONDS
    (pod,) = observe(lab).pods
    return pod


class TestPods:
    def test_creating_twice_is_harmless(self, lab: Lab) -> None:
        make_pod(lab)
        cache = ReconcilerCache()
        assert apply(lab, *creations(lab), cache=cache) is None
        assert not cache.rejections
        assert list(lab.pods()) == ["cats-worker-0-1"]

    def test_status_after_a_creation_waits_longer_in_a_burst(self, lab: Lab) -> None:
        lab.create()
        lab.plan(window(0, 1))
        seen = replace(observe(lab), is_busy=True)
        assert apply(lab, creations(lab)[0], seen=seen) == BUSY_CREATED_SECONDS

    def test_a_403_that_may_pass_is_no_refusal_until_it_has_lasted(self, lab: Lab) -> None:
        lab.create()
        lab.plan(window(0, 1))
        seen, action, cache = observe(lab), creations(lab)[0], ReconcilerCache()
        stranger = lab.cluster.service_account_kubeconfig("default", "default")  # as before the roles are known

        def tried(at: datetime) -> float | None:
            async def main() -> float | None:
                async with ApiClient.connect(str(stranger)) as client:
                    executor = ActionExecutor(client, cache, EventRecorder(client, lambda: at), SETTINGS, lambda: at)
                    return await executor.execute(seen, [action])

            return asyncio.run(main())

        begin = now()
        assert tried(begin) == PASSING_SECONDS
        assert not cache.rejections
        assert tried(begin + timedelta(seconds=SETTINGS.forbidden_patience_seconds)) == 0.0
        assert cache.rejections[seen.key].reason == "Forbidden"
        assert apply(lab, action, cache=cache) == CREATED_SECONDS
        assert not cache.rejections
        assert not cache.forbidden

    def test_a_late_eviction_does_not_hit_the_successor(self, lab: Lab) -> None:
        pod = make_pod(lab)
        assert apply(lab, EvictPod(pod.name, WRONG, 1, "late")) == CHANGED_SECONDS
        assert apply(lab, DeletePod(pod.name, WRONG, 1)) == CHANGED_SECONDS
        assert not observe(lab).pods[0].terminating

    @pytest.mark.parametrize("finalizers", [(), ("example.com/other", "tranche.dev/ledger")])
    def test_a_release_of_what_has_changed_does_nothing(self, lab: Lab, finalizers: tuple[str, ...]) -> None:
        pod = make_pod(lab)
        assert apply(lab, ReleasePod(pod.name, pod.uid, finalizers)) == CHANGED_SECONDS
        assert apply(lab, ReleasePod(pod.name, WRONG, pod.finalizers)) == CHANGED_SECONDS
        assert observe(lab).pods[0].finalizers == ("tranche.dev/ledger",)
        assert apply(lab, ReleasePod(pod.name, pod.uid, pod.finalizers)) is None
        assert observe(lab).pods[0].finalizers == ()

    def test_a_request_that_always_finds_a_change_becomes_a_failure(self, lab: Lab) -> None:
        pod, cache = make_pod(lab), ReconcilerCache()
        seen, wrong = observe(lab), ReleasePod(pod.name, WRONG, pod.finalizers)
        for _ in range(MAX_CHANGES):
            assert apply(lab, wrong, seen=seen, cache=cache) == CHANGED_SECONDS
        with pytest.raises(ApiError):
            apply(lab, wrong, seen=seen, cache=cache)
        apply(lab, ReleasePod(pod.name, pod.uid, pod.finalizers), seen=seen, cache=cache)
        assert not cache.changes

    def test_only_our_gate_is_removed(self, lab: Lab) -> None:
        pod = make_pod(lab, windows=2, gated=True, chunks=None, workers=2)
        assert pod.gates == ("tranche.dev/gang",)
        assert apply(lab, UngatePod(pod.name, WRONG, 0)) == CHANGED_SECONDS
        assert apply(lab, UngatePod(pod.name, pod.uid, 0)) is None
        assert apply(lab, UngatePod(pod.name, pod.uid, 0)) == CHANGED_SECONDS
        assert observe(lab).pods[0].gates == ()

    def test_gang_gates_are_removed_in_pass_that_creates_last_member(self, lab: Lab) -> None:
        first = make_pod(lab, windows=3, gated=True, chunks=None, workers=3)
        assert first.gates == ("tranche.dev/gang",)
        _, second, third = creations(lab, gated=True)
        assert apply(lab, second) == CREATED_SECONDS
        assert [pod.gates for pod in observe(lab).pods] == 2 * [("tranche.dev/gang",)]
        assert apply(lab, third) == CREATED_SECONDS
        assert [pod.gates for pod in observe(lab).pods] == 3 * [()]

    def test_event_is_sent_after_all_actions_are_done(self, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
        lab.create(chunks=None, workers=2)
        lab.plan(window(0, 1), window(1, 2))
        sent: list[tuple[str, str]] = []
        send = ApiClient._send

        async def note(client: ApiClient, method: str, path: str, *more: Any) -> Any:
            sent.append((method, path.partition(f"/namespaces/{lab.namespace}/")[2].partition("/")[0]))
            return await send(client, method, path, *more)

        seen, actions = observe(lab), creations(lab, gated=True)
        monkeypatch.setattr(ApiClient, "_send", note)
        assert apply(lab, *actions, seen=seen) == CREATED_SECONDS
        assert lab.events()["WindowOpened"]["message"] == f"2 workers start: 2 at {SITE}"
        assert sent == [("POST", "pods")] * 2 + [("PATCH", "pods")] * 2 + [("POST", "events")]

    def test_what_is_gone_is_no_error(self, lab: Lab) -> None:
        lab.create()
        late = (
            EvictPod("x", WRONG, 1, "w"),
            DeletePod("x", WRONG, 1),
            ReleasePod("x", WRONG, ()),
            UngatePod("x", WRONG, 0),
        )
        assert apply(lab, *late) is None


class TestJobs:
    def status(self, job: TrainingJob) -> dict[str, Any]:
        return new_status(job, PodCounts(), compute_phase(job, PodCounts(), now()), (), now(), NO_TIMES)

    def test_a_status_for_an_earlier_job_of_the_name_is_not_written(self, lab: Lab) -> None:
        lab.create()
        seen = observe(lab)
        assert seen.job is not None
        write = WriteStatus(seen.job.metadata.resource_version, self.status(seen.job))
        lab.ask("DELETE", lab.path("cats"))
        lab.create()
        assert apply(lab, write, seen=seen) == 0.0  # the next reconcile reads the later job
        assert "phase" not in lab.status()

    def test_status_that_lost_to_the_planner_is_retried_at_once(self, lab: Lab) -> None:
        lab.create()
        seen, cache = observe(lab), ReconcilerCache()
        assert seen.job is not None
        lab.plan(window(0, 1))
        status = self.status(seen.job)
        assert apply(lab, WriteStatus(seen.job.metadata.resource_version, status), seen=seen, cache=cache) == 0.0
        assert "phase" not in lab.status()
        again = observe(lab, cache)
        assert again.job is not None
        write = WriteStatus(again.job.metadata.resource_version, status)
        assert apply(lab, write, seen=again, cache=cache) is None
        assert lab.status()["phase"] == "Waiting"

    def test_a_status_for_a_job_that_is_gone_is_not_written(self, lab: Lab) -> None:
        lab.create()
        seen = observe(lab)
        assert seen.job is not None
        lab.ask("DELETE", lab.path("cats"))
        write = WriteStatus(seen.job.metadata.resource_version, self.status(seen.job))
        assert apply(lab, write, seen=seen) == CHANGED_SECONDS
        assert observe(lab).job is None

    def test_writing_the_status_leaves_the_planners_part_alone(self, lab: Lab) -> None:
        lab.create()
        lab.plan(window(0, 1), progress={"done": "3", "failures": 2})
        seen = observe(lab)
        assert seen.job is not None
        apply(lab, WriteStatus(seen.job.metadata.resource_version, self.status(seen.job)), seen=seen)
        status = lab.status()
        assert status["plan"]["workers"][0]["attempt"] == 1
        assert (status["progress"]["done"], status["progress"]["failures"]) == ("3", 2)
        assert status["phase"] == "Waiting"
        lab.plan(progress={"done": "3"})
        assert lab.status()["phase"] == "Waiting"

    def test_only_the_job_that_was_read_is_deleted(self, lab: Lab) -> None:
        uid = lab.create()["metadata"]["uid"]
        assert apply(lab, DeleteJob(WRONG)) == CHANGED_SECONDS
        assert observe(lab).job is not None
        assert apply(lab, DeleteJob(uid)) is None
        assert observe(lab).job is None

    def test_equal_events_are_one_event_with_a_count(self, lab: Lab) -> None:
        lab.create()
        times = iter([datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC) for second in (0, 1, 2, 20, 21)])
        seen = observe(lab)
        assert seen.job is not None
        job = seen.job

        async def use(client: ApiClient) -> None:
            recorder = EventRecorder(client, lambda: next(times))
            for number in range(5):
                await recorder.emit(job, EmitEvent("Warning", "PodsRejected", f"used: {number}"), count=1 + number)

        with_client(lab, use)
        event = lab.events()["PodsRejected"]
        assert event["count"] == 1 + 2 + 3 + 4 + 5
        assert event["message"] == "used: 4"
        assert (event["firstTimestamp"], event["lastTimestamp"]) == ("2026-01-01T00:00:00Z", "2026-01-01T00:00:21Z")


class TestServices:
    def test_it_is_known_whose_the_service_is(self, lab: Lab) -> None:
        lab.create()
        lab.plan(window(0, 1))
        seen = observe(lab)
        assert seen.job is not None
        assert seen.service is ServiceState.ABSENT
        cache = ReconcilerCache()
        create = CreateService(manifests.service(seen.job))
        assert apply(lab, create, seen=seen, cache=cache) is None
        assert observe(lab, cache).service is ServiceState.OWN
        cache = ReconcilerCache()  # another process
        assert observe(lab, cache).service is ServiceState.ABSENT, "as far as anybody knows"
        assert apply(lab, create, seen=seen, cache=cache) == 0.0, "look again"
        assert observe(lab, cache).service is ServiceState.OWN
        cache.services[seen.key] = seen.job.metadata.uid, float("-inf")
        other = lab.create("dogs")["metadata"]
        reference = "/metadata/ownerReferences/0"
        owner = [{"op": "replace", "path": f"{reference}/{field}", "value": other[field]} for field in ("name", "uid")]
        lab.ask("PATCH", lab.core("services", "cats"), owner, "application/json-patch+json")
        assert observe(lab, cache).service is ServiceState.STALE
        unowned = [{"op": "remove", "path": "/metadata/ownerReferences"}]
        lab.ask("PATCH", lab.core("services", "cats"), unowned, "application/json-patch+json")
        assert observe(lab, cache).service is ServiceState.OWN, "as after a restore from a backup"
        unlabelled = [{"op": "remove", "path": "/metadata/labels"}]
        lab.ask("PATCH", lab.core("services", "cats"), unlabelled, "application/json-patch+json")
        cache.services[seen.key] = seen.job.metadata.uid, float("-inf")
        assert observe(lab, cache).service is ServiceState.FOREIGN


class TestReading:
    def test_pods_changed_by_operator_are_not_listed_again(self, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
        cache = ReconcilerCache()
        cache.pods.sync([], cache.pods.clock())
        lab.create(chunks=None, workers=2)
        lab.plan(window(0, 1), window(1, 2))
        asked: list[str] = []
        get = ApiClient.get

        async def note(client: ApiClient, path: str, **params: Any) -> Any:
            if "/pods" in path:
                asked.append(path)
            return await get(client, path, **params)

        actions = creations(lab, gated=True)
        monkeypatch.setattr(ApiClient, "get", note)
        apply(lab, *actions, seen=observe(lab, cache), cache=cache)
        first, second = observe(lab, cache).pods
        assert (first.gates, first.phase) == ((), "Pending"), "ungated in the pass that has created them"
        ends = (EvictPod(first.name, first.uid, 1, "w"), ReleasePod(second.name, second.uid, second.finalizers))
        apply(lab, *ends, seen=observe(lab, cache), cache=cache)
        looks = [(pod.terminating, pod.finalizers) for pod in observe(lab, cache).pods]
        assert looks == [(True, first.finalizers), (False, ())]
        assert not asked, "no list of pods"
        assert sorted(pod.name for pod in observe(lab).pods) == sorted([first.name, second.name])
        assert asked, "who knows of no list reads one"

    def test_a_job_that_does_not_exist_is_none(self, lab: Lab) -> None:
        assert observe(lab) == Observed(f"{lab.namespace}/cats", None)

    def test_an_api_that_does_not_serve_jobs_says_nothing_of_a_job(self, lab: Lab, monkeypatch: Any) -> None:
        monkeypatch.setattr("tranche_operator.api_paths.RESOURCES", "/apis/not.served/v1")
        key = f"{lab.namespace}/cats"
        with pytest.raises(ApiError, match="does not serve TrainingJobs"):
            with_client(lab, lambda client: Reader(client, ReconcilerCache()).observe(key), admin=True)

    def test_everything_is_listed_page_by_page(self, lab: Lab, monkeypatch: Any) -> None:
        monkeypatch.setattr("tranche_operator.execute.reader.PAGE", 2)
        names = {f"job-{number}" for number in range(5)}
        for name in names:
            lab.create(name)

        async def use(client: ApiClient) -> set[str]:
            listed = [job["metadata"] async for job in Reader(client, ReconcilerCache()).all_jobs()]
            return {metadata["name"] for metadata in listed if metadata["namespace"] == lab.namespace}

        assert with_client(lab, use) == names


CONTAINERS = [
    {"name": "train", "image": "t:1", "env": [{"name": "TRANCHE_ATTEMPT", "value": "mine"}], "ports": []},
    {"name": "side", "image": "s:1", "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}]},
]
RICH = {
    "metadata": {"labels": {"team": "a"}, "annotations": {"k": "v"}},
    "spec": {
        "containers": CONTAINERS,
        "initContainers": [{"name": "fetch", "image": "f:1"}],
        "volumes": [{"name": "scratch", "emptyDir": {}}],
        "tolerations": [{"operator": "Exists"}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]},
                        {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["bad"]}]},
                    ]
                }
            }
        },
    },
}


@pytest.mark.parametrize("gang", [False, True])
@pytest.mark.parametrize("template", [TEMPLATE, RICH], ids=["plain", "rich"])
@pytest.mark.parametrize("node", [f"{SITE}-0", None])
def test_the_api_server_accepts_our_pods(lab: Lab, gang: bool, template: dict[str, Any], node: str | None) -> None:
    servers: dict[str, Any] = {} if gang else {"parameterServers": {"replicas": 1, "template": template}}
    checkpoint = {"volume": {"hostPath": {"path": "/var/ckpt", "type": "DirectoryOrCreate"}}}
    lab.create(chunks=None if gang else 4, template=template, checkpoint=checkpoint, **servers)
    lab.plan(window(0, 1, node=node), servers=[] if gang else [server(0, 2)])
    seen = observe(lab)
    job = seen.job
    assert job is not None
    assert job.status.plan is not None
    site = SiteSpec(node_selector={"pool": "burst"})
    pods = [manifests.worker_pod(job, job.status.plan.workers[0], SETTINGS, site)]
    pods += [manifests.server_pod(job, entry, SETTINGS, site) for entry in job.status.plan.parameter_servers]
    cache = ReconcilerCache()
    apply(lab, CheckTemplate(1, (*pods, *manifests.checked_pods(job, SETTINGS))), seen=seen, cache=cache)
    update = cache.verdicts[seen.key].update
    assert (update.status, update.message) == ("False", "the API server accepts the pods of the job")
    apply(lab, *(CreatePod(pod, "w", SITE) for pod in pods), seen=seen, cache=cache)
    assert len(lab.pods()) == len(pods)
    terms = lab.pods()["cats-worker-0-1"]["spec"]["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]["nodeSelectorTerms"]
    assert len(terms) == (2 if node else 1) * (2 if template is RICH else 1)
