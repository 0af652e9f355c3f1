"""Pods that a foreign pod may evict: those that lose least."""

from datetime import UTC, datetime
from typing import Any

import pytest

from support.extender_objects import Stores, stranger, window, worker
from tranche.extender.eviction_cost import loss
from tranche.extender.verbs import preempt
from tranche.extender.wire_format import MetaPod, MetaVictims
from tranche.kube.api.core_types import Pod
from tranche.kube.api.status import Progress

NOW = 1_800_000_000.0
SILENT = {"data": {"chunks": 4}, "parameterServers": None}


def running(seconds: float) -> dict[str, Any]:
    """Return the status of a pod that has trained for ``seconds``."""
    began = datetime.fromtimestamp(NOW - seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"phase": "Running", "containerStatuses": [{"name": "main", "state": {"running": {"startedAt": began}}}]}


def add(stores: Stores, name: str, node: str, trained: float, **spec: Any) -> Pod:
    """A job with one worker that runs."""
    gpus = spec.pop("gpus", 1)
    stores.add_job(name, window(0, 1, node), gpus=gpus, spec={**SILENT, **spec})
    return stores.add_pod(worker(name, 0, 1, node, gpus=gpus, status=running(trained), uid=f"uid-{name}"))


def victims(*pods: Pod, violations: int = 0) -> MetaVictims:
    return MetaVictims([MetaPod(pod.metadata.uid) for pod in pods], violations)


def chosen(stores: Stores, proposed: dict[str, MetaVictims], **pod: Any) -> dict[str, list[str]]:
    kept = preempt(stranger("web", **pod), proposed, stores.view, NOW)
    return {node: [victim.uid for victim in found.pods] for node, found in kept.items()}


class TestLosses:
    def test_loss_of_worker_without_reports_is_training_and_restart(self) -> None:
        stores = Stores(["n1"])
        pod = add(stores, "cats", "n1", 100.0, preemption={"restartOverhead": "20s"}, gpus=2)
        assert loss(pod, stores.view, NOW) == (0, 2 * 120.0)

    def test_loss_of_worker_with_parameter_server_is_its_restart(self) -> None:
        stores = Stores(["n1"])
        spec = {"parameterServers": {"replicas": 1, "template": {"spec": {"containers": []}}}}
        pod = add(stores, "cats", "n1", 100.0, preemption={"restartOverhead": "20s"}, **spec)
        assert loss(pod, stores.view, NOW) == (0, 20.0)

    def test_a_restart_costs_what_the_planner_reckons_with(self) -> None:
        stores = Stores(["n1"])
        pod = add(stores, "cats", "n1", 100.0)
        assert loss(pod, stores.view, NOW) == (0, 100.0), "nothing is known"
        (known,) = stores.jobs.store.values()
        status = known.status.model_copy(update={"progress": Progress(restart_seconds=35.0)})
        stores.jobs.put(known.key, known.model_copy(update={"status": status}))
        assert loss(pod, stores.view, NOW) == (0, 135.0)

    def test_policy_never_does_not_count_where_it_is_forbidden(self) -> None:
        stores = Stores(["n1"])
        pod = add(stores, "cats", "n1", 100.0, preemption={"policy": "Never"})
        assert loss(pod, stores.view, NOW) == (1, 100.0)
        (known,) = stores.jobs.store.values()
        assert known.status.plan is not None
        limited = known.status.plan.model_copy(update={"preemption_policy": "Immediate"})
        status = known.status.model_copy(update={"plan": limited})
        stores.jobs.put(known.key, known.model_copy(update={"status": status}))
        assert loss(pod, stores.view, NOW) == (0, 100.0)

    @pytest.mark.parametrize("role", ["worker", "ps"])
    def test_loss_of_gang_member_or_server_includes_all_workers(self, role: str) -> None:
        stores = Stores(["n1"])
        gang = {"data": None, "parameterServers": None} if role == "worker" else {"data": {"chunks": 4}}
        stores.add_job(
            "cats",
            window(0, 1, "n1"),
            window(1, 2, "n1"),
            window(2, 3, "n1", state="Closing"),
            gpus=4,
            spec={**gang, "preemption": {"restartOverhead": "20s"}},
        )
        gpus = 4 if role == "worker" else 0
        pod = stores.add_pod(worker("cats", 0, 1, "n1", role=role, gpus=gpus, status=running(100.0)))
        assert loss(pod, stores.view, NOW) == (0, 2 * 4 * 120.0)

    def test_loss_of_terminating_or_foreign_pod_is_zero(self) -> None:
        stores = Stores(["n1"])
        add(stores, "cats", "n1", 100.0)
        going = worker("cats", 0, 1, "n1", status=running(100.0), deletionTimestamp="2027-01-15T08:00:30Z")
        assert loss(going, stores.view, NOW) == (0, 0.0)
        assert loss(stranger("web", "n1"), stores.view, NOW) == (0, 0.0)


class TestChoices:
    def test_the_node_where_least_is_lost_is_the_only_one_left(self) -> None:
        stores = Stores(["n1", "n2", "n3"], gpus=1)
        pods = {f"n{i}": add(stores, f"j{i}", f"n{i}", trained) for i, trained in ((1, 900.0), (2, 30.0), (3, 500.0))}
        proposed = {node: victims(pod) for node, pod in pods.items()}
        assert chosen(stores, proposed) == {"n2": ["uid-j2"]}

    def test_who_is_never_to_be_stopped_goes_last_whatever_it_loses(self) -> None:
        stores = Stores(["n1", "n2"], gpus=1)
        never = add(stores, "never", "n1", 1.0, preemption={"policy": "Never"})
        other = add(stores, "other", "n2", 900.0)
        assert chosen(stores, {"n1": victims(never), "n2": victims(other)}) == {"n2": ["uid-other"]}

    def test_a_node_where_no_budget_is_violated_comes_first(self) -> None:
        stores = Stores(["n1", "n2"], gpus=1)
        short, long = add(stores, "short", "n1", 1.0), add(stores, "long", "n2", 900.0)
        assert chosen(stores, {"n1": victims(short, violations=1), "n2": victims(long)}) == {"n2": ["uid-long"]}

    def test_gang_with_several_victims_is_lost_once(self) -> None:
        stores = Stores(["n1", "n2"], gpus=4)
        stores.add_job("gang", *(window(i, i + 1, "n1") for i in range(4)), spec={**SILENT, "data": None})
        members = [stores.add_pod(worker("gang", i, i + 1, "n1", status=running(100.0))) for i in range(4)]
        alone = [add(stores, f"j{i}", "n2", 300.0) for i in range(4)]
        kept = chosen(stores, {"n1": victims(*members), "n2": victims(*alone)}, gpus=4)
        assert list(kept) == ["n1"], "400 GPU-seconds instead of 1200"

    def test_pod_that_does_not_stop_is_evicted_last(self) -> None:
        stores = Stores(["n1", "n2"], gpus=2)
        ended = datetime.fromtimestamp(NOW - 60.0, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        stores.add_job("stuck", window(0, 1, "n1"), spec=SILENT)
        pod = worker("stuck", 0, 1, "n1", status=running(900.0), uid="uid-stuck", deletionTimestamp=ended)
        stuck = stores.add_pod(pod)
        trains, other = add(stores, "trains", "n1", 900.0), add(stores, "other", "n2", 950.0)
        assert chosen(stores, {"n1": victims(trains)}) == {"n1": ["uid-trains"]}
        assert chosen(stores, {"n1": victims(stuck)}) == {"n1": ["uid-trains"]}
        assert chosen(stores, {"n1": victims(trains), "n2": victims(other)}) == {"n1": ["uid-trains"]}

    def test_victims_on_node_are_swapped_for_equal_size_lower_loss(self) -> None:
        stores = Stores(["n1"], gpus=3)
        pods = [add(stores, f"j{i}", "n1", trained) for i, trained in enumerate((900.0, 30.0, 500.0))]
        assert chosen(stores, {"n1": victims(pods[0])}) == {"n1": ["uid-j1"]}
        assert sorted(chosen(stores, {"n1": victims(pods[0], pods[2])}, gpus=2)["n1"]) == ["uid-j1", "uid-j2"]

    def test_victims_are_not_swapped_for_other_sizes_or_without_need(self) -> None:
        stores = Stores(["n1"], gpus=4)
        long = add(stores, "long", "n1", 900.0)
        add(stores, "wide", "n1", 1.0, gpus=3)
        assert chosen(stores, {"n1": victims(long)}) == {"n1": ["uid-long"]}
        roomy = Stores(["n1"], gpus=8)
        long = add(roomy, "long", "n1", 900.0)
        add(roomy, "short", "n1", 1.0)
        assert chosen(roomy, {"n1": victims(long)}) == {"n1": ["uid-long"]}

    def test_where_only_foreign_pods_would_go_kube_scheduler_chooses(self) -> None:
        stores = Stores(["n1", "n2"], gpus=1)
        pods = {name: stores.add_pod(stranger(name, name, uid=f"uid-{name}")) for name in ("n1", "n2")}
        proposed = {node: victims(pod) for node, pod in pods.items()}
        assert chosen(stores, proposed) == {"n1": ["uid-n1"], "n2": ["uid-n2"]}

    def test_victims_that_are_not_known_and_empty_lists_are_accepted(self) -> None:
        stores = Stores(["n1", "n2"], gpus=1)
        pod = add(stores, "cats", "n1", 100.0)
        absent = MetaVictims([MetaPod("gone")])
        assert chosen(stores, {"n1": victims(pod), "n2": absent, "n9": MetaVictims()}) == {"n2": ["gone"]}
