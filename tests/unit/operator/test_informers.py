"""Mirrors of pods and disruption budgets from lists and watches of a small API server over real HTTP."""

from pathlib import Path

from support.fake_api_server import FakeApi, run
from tranche.kube.client.client import ApiClient
from tranche_operator.reconcile.observed import PodView
from tranche_operator.watch.informers import Budgets, pod_informer


def test_namespace_may_have_budgets_until_known_to_have_none(tmp_path: Path) -> None:
    async def scenario(api: FakeApi, config: str) -> None:
        async with ApiClient.connect(config) as client:
            budgets = Budgets(client)
            assert budgets.may_have_budget("ns"), "nothing is known"
            api.put("shop")
            api.put("web")
            await budgets.reflector.read()
            assert (budgets.may_have_budget("ns"), budgets.may_have_budget("other")) == (True, False)
            api.remove("shop")
            api.put("web", minAvailable=2)
            await budgets.reflector.read()
            assert budgets.may_have_budget("ns")
            api.remove("web")
            await budgets.reflector.read()
            assert not budgets.may_have_budget("ns")

    run(tmp_path, scenario)


def test_mirrored_pods_are_reported_with_job_key_and_deletion(tmp_path: Path) -> None:
    async def scenario(api: FakeApi, config: str) -> None:
        noted: list[tuple[str, str, int, bool]] = []

        def note(key: str, pod: PodView, gone: bool) -> None:
            noted.append((key, pod.name, pod.version, gone))

        async with ApiClient.connect(config) as client:
            pods = pod_informer(client, note)
            api.put("p")
            api.objects["p"]["metadata"]["labels"] = {"tranche.dev/job": "cats"}
            await pods.read()
            await pods.read()
            assert noted == [("ns/cats", "p", 1, False)]
            assert api.requests[0]["labelSelector"] == "tranche.dev/job"
            api.remove("p")
            await pods.read()
            assert noted[1:] == [("ns/cats", "p", 1, True)]

    run(tmp_path, scenario)
