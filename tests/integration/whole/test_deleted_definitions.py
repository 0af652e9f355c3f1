"""The definition of TrainingJob is deleted while jobs train, and applied again."""

from support.full_stack import full_stack
from tranche.demo.local_stack import apply_manifests, await_kinds

DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/trainingjobs.tranche.dev"


def test_pods_end_with_the_definition_and_jobs_can_return() -> None:
    with full_stack({"edge-a": {"nodes": 2, "gpus": 1}}) as system:
        system.submit("before", seconds=600.0)
        system.until_trained("before", 1)
        assert system.cluster.request("DELETE", DEFINITION)[0] == 200
        system.until("the pods are gone", lambda: not system.pods("before"))
        system.until("the definition is gone", lambda: system.cluster.request("GET", DEFINITION)[0] == 404)
        apply_manifests(system.cluster)
        await_kinds(system.cluster)
        system.submit("after")
        system.until_phase("after", "Succeeded")
        assert system.stack.ended() == {}
