"""Explanations after a user has changed the job that they name, with the default interval of estimates."""

from collections.abc import Iterator
from typing import Any

import pytest

from support.full_stack import System, full_stack

PATH = "/apis/tranche.dev/v1alpha1/namespaces/default/trainingjobs/ahead"


@pytest.fixture(scope="module")
def system() -> Iterator[System]:
    with full_stack({"edge-a": {"nodes": 2, "gpus": 1}}, options=["--validate"]) as made:
        yield made


def explanation(system: System) -> str:
    return str(system.status("behind").get("plan", {}).get("explanation", ""))


@pytest.mark.parametrize("change", [{"suspend": True}, {"weight": 0.001}, None], ids=["suspend", "weight", "delete"])
def test_explanation_no_longer_names_a_changed_job(system: System, change: dict[str, Any] | None) -> None:
    """The planned times move by less than the interval at which they are written again."""
    system.submit("busy", chunks=2, seconds=1000.0, preemption={"policy": "Never"})
    system.until_phase("busy", "Running")
    system.submit("ahead", chunks=2, seconds=100.0)
    system.submit("behind", chunks=2, seconds=150.0)
    system.until("the first sentence", lambda: "behind default/ahead, which has less work left" in explanation(system))
    if change is None:
        system.cluster.request("DELETE", PATH)
    else:
        system.cluster.request("PATCH", PATH, {"spec": change}, content_type="application/merge-patch+json")
    system.until("the next sentence", lambda: "default/ahead" not in explanation(system) and explanation(system))
    system.delete("busy", "behind", *(["ahead"] if change else []))
