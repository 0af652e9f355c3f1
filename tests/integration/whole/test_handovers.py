"""From a victim to who takes its place: no longer than the victim needs to save."""

import logging
from collections.abc import Callable
from typing import Any

from support.full_stack import Whole
from support.object_history import History

logger = logging.getLogger(__name__)
PODS = "/api/v1/namespaces/default/pods"
SAVING_SECONDS = 3.0
TURNAROUND_SECONDS = 1.0
"""From the victim's end to the other worker's start."""


def heard(history: History, job: str, what: Callable[[dict[str, Any]], Any]) -> float:
    """When something was first true of the job's only pod."""
    pods = (pod for pod in history.events[PODS] if pod["metadata"]["labels"]["tranche.dev/job"] == job)
    return next(float(pod["heard"]) for pod in pods if what(pod))


def test_beneficiary_starts_when_victim_saved_before_grace_ends(whole: Whole) -> None:
    """The grace period is 5 s."""
    with History(str(whole.cluster.kubeconfig), PODS) as history:
        whole.submit("saving", seconds=60.0, zone="edge-a", checkpoint_seconds=SAVING_SECONDS)
        whole.submit("beside", seconds=120.0, zone="edge-a", preemption={"policy": "Never"})  # the most work left
        whole.until("both run", lambda: {whole.status(j).get("phase") for j in ("saving", "beside")} == {"Running"})
        whole.submit("urgent", seconds=1.0, zone="edge-a")
        whole.until_phase("urgent", "Succeeded")
    asked = heard(history, "saving", lambda pod: pod["metadata"].get("deletionTimestamp"))
    saved = heard(history, "saving", lambda pod: pod["status"].get("phase") == "Failed")
    started = heard(history, "urgent", lambda pod: pod["status"].get("phase") == "Running")
    logger.info("saved after %.2f s, started %.2f s later", saved - asked, started - saved)
    assert saved - asked >= SAVING_SECONDS - 0.5
    assert 0 < started - saved <= TURNAROUND_SECONDS
    assert whole.status("beside")["progress"]["preemptions"] == 0
    whole.delete("saving", "beside", "urgent")


def test_victim_with_cost_above_gain_is_not_preempted(whole: Whole) -> None:
    whole.submit("costly", seconds=60.0, zone="edge-a", preemption={"restartOverhead": "10m"})
    whole.submit("beside", seconds=120.0, zone="edge-a", preemption={"policy": "Never"})
    whole.until("both run", lambda: {whole.status(j).get("phase") for j in ("costly", "beside")} == {"Running"})
    whole.submit("quick", seconds=1.0, zone="edge-a")
    whole.until("a planned start", lambda: whole.status("quick").get("plan", {}).get("estimatedStart"))
    assert not whole.pods("quick")
    assert [window["state"] for window in whole.status("costly")["plan"]["workers"]] == ["Open"]
    whole.delete("quick", "costly", "beside")
