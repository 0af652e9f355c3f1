"""Sites with values that only another release of the CRD knows."""

import asyncio
import json
from typing import Any

import pytest

from support.live_controller import resource, taken_over
from tranche.kube.api.resources import SiteObject
from tranche.kube.api.site_decoder import UnreadableSite, decode_new_site


def written(**spec: Any) -> bytes:
    return json.dumps({"metadata": {"name": "edge"}, "spec": {"nodeSelector": {"zone": "good"}, **spec}}).encode()


def test_site_with_unknown_value_keeps_its_nodes() -> None:
    """Without it, they would belong to no site: the planner would take them for gone."""
    found = decode_new_site(written(tier="Fog", disconnectTolerance="2h"))
    assert isinstance(found, UnreadableSite)
    assert found.problem.startswith("spec.tier: ")
    assert (found.spec.node_selector, found.spec.disconnect_tolerance) == ({"zone": "good"}, "2h")
    other = SiteObject.model_validate({"metadata": {"name": "far"}, "spec": {"nodeSelector": {"zone": "far"}}})
    controller = asyncio.run(taken_over(resource("a"), sites=(found, other), policy="chunk"))
    runs = controller.planner.cluster.jobs["default/a"].runs.values()
    assert [(run.window.site, run.window.node) for run in runs] == [("edge", "n1"), ("edge", "n1")]
    assert controller.metrics.registry.get_sample_value("tranche_errors_total", {"kind": "object"}) == 1


def test_site_without_readable_selector_is_an_error() -> None:
    with pytest.raises(ValueError, match="nodeSelector"):
        decode_new_site(written(nodeSelector=[]))
