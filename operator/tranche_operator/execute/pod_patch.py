"""JSON patches of pods: finalizer, scheduling gate, and the label by which the Service selects a pod."""

from typing import Any

from tranche.kube.api.names import FINALIZER_LEDGER, GANG_GATE, LABEL_MANAGED_BY
from tranche_operator.reconcile.actions import ReleasePod, UngatePod, WithdrawPod

PodPatch = ReleasePod | UngatePod | WithdrawPod
Operations = list[dict[str, Any]]


def pod_patch(action: PodPatch) -> tuple[Operations, str]:
    """Return the patch, which fails if the pod is another one or has changed in this respect, and what it does."""
    operations, done = _change(action)
    return [{"op": "test", "path": "/metadata/uid", "value": action.uid}, *operations], done


def _change(action: PodPatch) -> tuple[Operations, str]:
    match action:
        case ReleasePod():
            return _release(action), f"removed the ledger finalizer from pod {action.name}"
        case UngatePod():
            return _ungate(action), f"removed the scheduling gate from pod {action.name}: the gang is complete"
        case WithdrawPod():
            withdrawal = [{"op": "remove", "path": f"/metadata/labels/{LABEL_MANAGED_BY.replace('/', '~1')}"}]
            return withdrawal, f"withdrew pod {action.name} from the Service: a later attempt has its host name"


def _release(action: ReleasePod) -> Operations:
    left = [finalizer for finalizer in action.finalizers if finalizer != FINALIZER_LEDGER]
    return [
        {"op": "test", "path": "/metadata/finalizers", "value": list(action.finalizers)},
        {"op": "replace", "path": "/metadata/finalizers", "value": left},
    ]


def _ungate(action: UngatePod) -> Operations:
    gate = f"/spec/schedulingGates/{action.gate}"
    return [{"op": "test", "path": f"{gate}/name", "value": GANG_GATE}, {"op": "remove", "path": gate}]
