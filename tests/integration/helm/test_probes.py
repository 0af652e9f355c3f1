"""The probes of the chart, asked of the real programs."""

import subprocess
import sys
import urllib.request
from collections.abc import Callable
from typing import Any

from tranche.demo.stacks import Stack
from tranche_testcluster import Cluster

Render = Callable[..., list[dict[str, Any]]]
KINDS = ("startupProbe", "livenessProbe", "readinessProbe")


def test_both_programs_answer_their_probes(render: Render, cluster: Cluster) -> None:
    deployments = [o for o in render() if o["kind"] == "Deployment"]
    containers = {c["name"]: c for d in deployments for c in d["spec"]["template"]["spec"]["containers"]}
    with Stack(cluster) as stack:
        for kind in KINDS:
            program, *arguments = containers["scheduler"][kind]["exec"]["command"]
            assert program == "python"
            command = [sys.executable, *(a.replace(":10262/", f":{stack.port}/") for a in arguments)]
            assert subprocess.run(command, check=False, timeout=30).returncode == 0, kind
            path = containers["operator"][kind]["httpGet"]["path"]
            with urllib.request.urlopen(f"http://127.0.0.1:{stack.health_port}{path}", timeout=10) as answer:
                assert answer.status == 200, kind
