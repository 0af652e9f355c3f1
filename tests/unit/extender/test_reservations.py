from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from support.extender_objects import Stores, job, stranger, window, worker
from tranche.extender.reservations import MAX_REFUSALS, Reservations
from tranche.kube.api.resources import AdmittedPods
from tranche.model import Resources

ONE = Resources(cpu=1000, gpus=1, pods=1)
LEAVING: dict[str, Any] = {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30}


def free_gpus(stores: Stores, node: str) -> int:
    return stores.view.reservations.node(node).free.gpus


def test_bound_pods_use_their_node_until_they_are_over() -> None:
    stores = Stores(["n1"])
    stores.add_pod(stranger("a", "n1", gpus=2))
    stores.add_pod(worker("cats", 0, 1, "n1"))
    stores.add_pod(stranger("unbound", gpus=4))
    assert free_gpus(stores, "n1") == 5
    stores.add_pod(worker("cats", 0, 1, "n1", status={"phase": "Succeeded"}))
    stores.pods.put("ns/a", None)
    assert free_gpus(stores, "n1") == 8


def test_a_pod_on_its_way_out_still_uses_its_node() -> None:
    stores = Stores(["n1"])
    stores.add_pod(worker("cats", 0, 1, "n1", **LEAVING))
    assert free_gpus(stores, "n1") == 7


def test_open_window_reserves_its_node_until_its_pod_is_bound() -> None:
    stores = Stores(["n1", "n2"], gpus=1)
    stores.add_job("cats", window(0, 1, "n1"))
    assert stores.view.reservations.objection("n1", "ns/other", ONE) == "n1 is reserved for ns/cats-worker-0-1"
    assert stores.view.reservations.objection("n1", "ns/cats-worker-0-1", ONE) == ""
    stores.add_pod(worker("cats", 0, 1))
    assert stores.view.reservations.objection("n1", "ns/other", ONE)
    stores.add_pod(worker("cats", 0, 1, "n2"))
    assert stores.view.reservations.objection("n1", "ns/other", ONE) == ""


def test_chief_reserves_its_node_until_bound_or_closed() -> None:
    stores = Stores(["n1"], gpus=1)
    chief = {"index": 0, "attempt": 1, "site": "edge-a", "node": "n1"}
    stores.add_job("cats", gpus=0, chief=chief)
    assert stores.view.reservations.objection("n1", "ns/other", ONE) == "n1 is reserved for ns/cats-chief-0-1"
    stores.add_job("cats", gpus=0, chief={**chief, "state": "Closing"})
    assert stores.view.reservations.objection("n1", "ns/other", ONE) == ""
    pod = stores.add_pod(worker("cats", 0, 1, "n1", role="chief"))
    assert stores.view.reservations.leaving("n1") == pod.key


def test_window_with_pod_bound_before_plan_reserves_nothing() -> None:
    stores = Stores(["n1"], gpus=1)
    stores.add_pod(worker("cats", 0, 1, "n1", status={"phase": "Failed"}))
    stores.add_job("cats", window(0, 1, "n1"))
    assert stores.view.reservations.objection("n1", "ns/other", ONE) == ""


def test_closing_windows_and_ended_jobs_reserve_nothing() -> None:
    stores = Stores(["n1"], gpus=1)
    stores.add_job("cats", window(0, 1, "n1", state="Closing"))
    stores.add_job("dogs", window(0, 1, "n1"), phase="Failed")
    stores.add_job("eels", window(0, 1, "n1"), deletionTimestamp="2026-01-01T00:00:00Z")
    stores.add_job("foxes", window(0, 1, "n1"), planned=False)
    stores.add_job("goats", window(0, 1, None))
    assert stores.view.reservations.objection("n1", "ns/other", ONE) == ""


def test_parameter_server_reserves_requests_of_its_template() -> None:
    stores = Stores(["n1"], gpus=1)
    stores.add_job("cats", servers=[window(0, 1, "n1")])
    claims = stores.view.reservations.node("n1").claims
    assert claims["ns/cats-ps-0-1"].requests == Resources(cpu=1000, pods=1)


def test_new_plan_moves_reservation_and_removed_job_frees_it() -> None:
    stores = Stores(["n1", "n2"], gpus=1)
    stores.add_job("cats", window(0, 1, "n1"))
    stores.add_job("cats", window(0, 1, "n2"), stamp=(1, 2))
    assert stores.view.reservations.objection("n1", "ns/other", ONE) == ""
    assert stores.view.reservations.objection("n2", "ns/other", ONE)
    stores.jobs.put("ns/cats", None)
    assert stores.view.reservations.objection("n2", "ns/other", ONE) == ""


def test_reserved_node_is_refused_until_its_pod_is_bound() -> None:
    stores = Stores(["n1", "n2"], gpus=1)
    refusals = stores.view.reservations.refusals
    assert refusals(-9, 1) == {}
    stores.add_job("cats", window(0, 1, "n1"))
    stores.add_job("dogs", window(0, 1, "n2"))
    assert refusals(-9, 1).keys() == {"n1", "n2"}
    assert refusals(1, 1) == {}
    stores.add_pod(worker("cats", 0, 1, "n1"))
    assert refusals(-9, 1).keys() == {"n2"}
    assert refusals(-9, 1)["n2"].startswith("the free GPUs of n2 are reserved for ns/dogs-worker-0-1")
    stores.jobs.put("ns/dogs", None)
    assert refusals(-9, 1) == {}


def test_refusals_are_kept_for_a_limited_number_of_kinds() -> None:
    stores = Stores(["n1"])
    stores.add_job("cats", window(0, 1, "n1"))
    for _ in range(2):
        assert [bool(stores.view.reservations.refusals(-9, gpus)) for gpus in range(40)] == [False] * 8 + [True] * 32
    assert len(stores.view.reservations._refusals) == MAX_REFUSALS


def test_a_changed_template_changes_the_reservation() -> None:
    stores = Stores(["n1"])
    stores.add_job("cats", window(0, 1, "n1"), gpus=1)
    stores.add_job("cats", window(0, 1, "n1"), gpus=8, generation=2)
    assert stores.view.reservations.protection("n1", -9) == (8, "ns/cats-worker-0-1")


def test_changed_admission_changes_the_reservation() -> None:
    """A webhook that is installed while the job runs changes what the next pods request, within one generation."""
    stores = Stores(["n1"])
    for cpu in (1000, 32_000):
        one = job("cats", window(0, 1, "n1"), generation=1)
        pods = [{"role": "worker", "requests": {"cpu": f"{cpu}m", "nvidia.com/gpu": "1"}}]
        admitted = AdmittedPods.model_validate({"generation": 1, "pods": pods})
        status = one.status.model_copy(update={"admitted": admitted})
        stores.jobs.put(one.key, one.model_copy(update={"status": status}))
        assert [claim.requests.cpu for claim in stores.view.reservations.node("n1").claims.values()] == [cpu]


def test_only_plans_of_at_least_the_priority_protect() -> None:
    stores = Stores(["n1"])
    stores.add_job("cats", window(0, 1, "n1"), tier="tranche-low")
    assert stores.view.reservations.protection("n1", -10)[0] == 1
    assert stores.view.reservations.protection("n1", -9)[0] == 0


def test_an_unknown_node_is_objected_to() -> None:
    assert "not yet in tranche" in Stores().view.reservations.objection("n1", "ns/a", ONE)


def test_a_full_node_says_so() -> None:
    stores = Stores(["n1"], gpus=1)
    stores.add_pod(stranger("a", "n1"))
    assert stores.view.reservations.objection("n1", "ns/b", ONE) == "n1 has insufficient free resources"


def test_node_without_free_cpu_takes_a_pod_that_requests_none() -> None:
    stores = Stores(["n1"], gpus=1)
    stores.add_node("n1", 1, cpu="0")
    stores.add_pod(stranger("a", "n1", gpus=0))
    assert stores.view.reservations.node("n1").free.cpu < 0
    assert stores.view.reservations.objection("n1", "ns/b", Resources(gpus=1, pods=1)) == ""


class TestLeaving:
    def test_a_terminating_training_pod_is_leaving(self) -> None:
        stores = Stores(["n1"])
        stores.add_pod(worker("cats", 0, 1, "n1", **LEAVING))
        assert stores.view.reservations.leaving("n1") == "ns/cats-worker-0-1"

    def test_the_pod_of_a_closing_window_is_leaving(self) -> None:
        stores = Stores(["n1"])
        stores.add_pod(worker("cats", 0, 1, "n1"))
        stores.add_job("cats", window(0, 1, "n1", state="Closing"))
        assert stores.view.reservations.leaving("n1") == "ns/cats-worker-0-1"

    def test_a_pod_that_a_newer_plan_does_not_name_is_leaving(self) -> None:
        stores = Stores(["n1"])
        stores.add_pod(worker("cats", 0, 1, "n1", plan="1.1"))
        stores.add_job("cats", stamp=(1, 2))
        assert stores.view.reservations.leaving("n1")

    def test_pod_of_a_plan_not_yet_seen_is_not_leaving(self) -> None:
        stores = Stores(["n1"])
        stores.add_pod(worker("cats", 0, 1, "n1", plan="1.3"))
        stores.add_job("cats", stamp=(1, 2))
        stores.add_pod(worker("dogs", 0, 1, "n1"))
        assert stores.view.reservations.leaving("n1") == ""

    def test_copy_of_a_pod_with_its_labels_is_not_leaving(self) -> None:
        stores = Stores(["n1"])
        stores.add_pod(worker("cats", 0, 1, "n1", ownerReferences=[]))
        stores.add_job("cats", stamp=(1, 2))
        assert stores.view.reservations.leaving("n1") == ""

    def test_a_pod_that_brings_data_is_not_leaving(self) -> None:
        stores = Stores(["n1"])
        bringing = worker("cats", 0, 1, "n1", plan="1.1")
        labels = {**bringing.metadata.labels, "tranche.dev/role": "staging"}
        metadata = msgspec.structs.replace(bringing.metadata, labels=labels)
        stores.add_pod(msgspec.structs.replace(bringing, metadata=metadata))
        stores.add_job("cats", stamp=(1, 2))
        assert stores.view.reservations.leaving("n1") == ""

    def test_foreign_open_window_and_ended_pods_are_not_leaving(self) -> None:
        stores = Stores(["n1"])
        stores.add_pod(stranger("a", "n1", **LEAVING))
        stores.add_pod(worker("cats", 0, 1, "n1"))
        stores.add_pod(worker("cats", 1, 2, "n1", status={"phase": "Failed"}, **LEAVING))
        stores.add_job("cats", window(0, 1, "n1"))
        assert stores.view.reservations.leaving("n1") == ""


NODES = st.sampled_from(["n1", "n2", "n3"])
JOBS = st.sampled_from(["cats", "dogs"])
NUMBERS = st.integers(0, 2)


class AnyOrder(RuleBasedStateMachine):
    """However changes arrive, the index says the same as one that is built from the stores at once."""

    def __init__(self) -> None:
        super().__init__()
        self.stores = Stores()

    @rule(name=NODES, there=st.booleans(), gpus=st.integers(0, 4))
    def change_node(self, name: str, there: bool, gpus: int) -> None:
        if there:
            self.stores.add_node(name, gpus)
        else:
            self.stores.nodes.put(name, None)

    @rule(
        job=JOBS, attempt=NUMBERS, node=NODES | st.just(""), phase=st.sampled_from(["", "Failed"]), gone=st.booleans()
    )
    def change_pod(self, job: str, attempt: int, node: str, phase: str, gone: bool) -> None:
        made = worker(job, 0, attempt, node, status={"phase": phase}, **(LEAVING if gone else {}))
        self.stores.add_pod(made)

    @rule(job=JOBS, attempt=NUMBERS)
    def remove_pod(self, job: str, attempt: int) -> None:
        self.stores.pods.put(f"ns/{job}-worker-0-{attempt}", None)

    @rule(
        job=JOBS,
        windows=st.lists(st.tuples(NUMBERS, NODES | st.none(), st.sampled_from(["Open", "Closing"])), max_size=3),
        gpus=NUMBERS,
        generation=st.integers(1, 2),
    )
    def change_job(self, job: str, windows: list[tuple[int, str | None, str]], gpus: int, generation: int) -> None:
        unique = {attempt: window(0, attempt, node, state=state) for attempt, node, state in windows}
        self.stores.add_job(job, *unique.values(), gpus=gpus * generation, generation=generation, uid=f"{gpus}")

    @rule(job=JOBS)
    def remove_job(self, job: str) -> None:
        self.stores.jobs.put(f"ns/{job}", None)

    @invariant()
    def the_index_is_as_if_built_now(self) -> None:
        built = Reservations(self.stores.pods.store, self.stores.jobs.store, ("nvidia.com/gpu",))
        self.stores.nodes.subscribe(built.note_node)
        self.stores.pods.subscribe(built.note_pod)
        self.stores.jobs.subscribe(built.note_job)
        kept = self.stores.view.reservations
        assert kept._nodes == built._nodes
        assert kept._claims == built._claims
        assert kept._placed == built._placed
        for kind in ((-10, 1), (-9, 1), (-9, 3)):
            assert kept.refusals(*kind).keys() == built.refusals(*kind).keys()


AnyOrder.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
TestAnyOrder = AnyOrder.TestCase
