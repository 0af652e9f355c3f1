"""Time from the node of a pod of tranche to its readiness, in real containers: the images as their chart starts them.

``python benchmarks/image_start.py`` takes about four minutes and needs Linux, root and Debian, as ``make e2e`` does.
One pod after the other is deleted, and its successor is timed from its binding until the condition Ready. A pod of the
scheduler has four containers, one of the operator has one.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "worker" / "examples")]

from support.real_lab import NAMESPACE, await_system, installed_chart, is_ready, system_pods  # noqa: E402
from tranche_testcluster import Cluster  # noqa: E402
from tranche_testcluster.node import unavailable  # noqa: E402

LIMIT_SECONDS = 5.0
POLL_SECONDS = 0.05


def start_seconds(cluster: Cluster, component: str) -> float:
    """Delete a pod of a component, and return the seconds from the binding of its successor to its readiness."""
    old_uids = {pod["metadata"]["uid"] for pod in system_pods(cluster, component)}
    name = system_pods(cluster, component)[0]["metadata"]["name"]
    cluster.kubectl("delete", "pod", name, f"--namespace={NAMESPACE}", "--wait=false")
    path = f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=app.kubernetes.io/component={component}"
    bound = None
    while True:
        for pod in cluster.request("GET", path)[1]["items"]:
            if pod["metadata"]["uid"] in old_uids or "nodeName" not in pod["spec"]:
                continue
            bound = bound or time.monotonic()
            if is_ready(pod):
                return time.monotonic() - bound
        time.sleep(POLL_SECONDS)


def main() -> int:
    """Measure, print, and compare with the limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=5, help="starts of each component")
    options = parser.parse_args()
    if reason := unavailable():
        print(f"skipped: {reason}")
        return 0
    late = False
    print("| seconds from bound to ready | median | longest |\n| :-- | --: | --: |")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        with installed_chart(Path(folder)) as installed:
            for component in ("scheduler", "operator"):
                seconds = []
                for _ in range(options.starts):
                    await_system(installed.cluster)
                    seconds.append(start_seconds(installed.cluster, component))
                late = late or median(seconds) > LIMIT_SECONDS
                print(f"| pod of the {component} | {median(seconds):.1f} | {max(seconds):.1f} |", flush=True)
    return int(late)


if __name__ == "__main__":
    sys.exit(main())
