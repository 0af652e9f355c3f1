"""The pictures of docs/how-to/web-page.md: the page over a running tranche with four sites, in headless Chromium."""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support.browser import DESK, PHONE, opened, require_chromium, started
from support.full_stack import System, declare_site
from tranche.demo.local_stack import Stack, apply_manifests
from tranche.demo.page_account import NAME, NAMESPACE, create_visitor, visitor_token
from tranche_testcluster import Cluster

PICTURES = Path(__file__).parents[1] / "docs/pictures"


SITES = {"edge-a": 2, "edge-b": 2, "edge-c": 2, "cloud": 4}
"""GPUs of a node; each site has two nodes. The cloud creates none on demand, so that some job waits."""


def create_sites(cluster: Cluster) -> None:
    """Create nodes and Site objects, with links between all sites."""
    for name, gpus in SITES.items():
        cluster.add_site(name, nodes=2, gpus=gpus)
        links = [{"to": other, "bandwidth": "1G", "latency": "20ms"} for other in SITES if other != name]
        declare_site(cluster, name, tier="Cloud" if name == "cloud" else "Edge", links=links)


def main() -> None:
    require_chromium()
    with Cluster() as cluster:
        apply_manifests(cluster)
        create_sites(cluster)
        create_visitor(cluster)
        account = f"--serviceaccount={NAMESPACE}:{NAME}"
        # With this role, the page shows the buttons of actions.
        cluster.kubectl("create", "clusterrolebinding", "demo-editor", "--clusterrole=edit", account)
        with Stack(cluster, scheduler_options=["--estimate-seconds", "1"]) as stack, started() as browser:
            system = System(cluster, stack)
            system.submit("tabular", chunks=3, seconds=4.0, zone="edge-a")
            data = {"chunks": 12, "batchesPerChunk": 50, "chunkSize": "64Mi", "site": "edge-a"}
            system.submit("resnet-50", chunks=12, seconds=90.0, data=data)
            system.submit("bert-large", chunks=8, seconds=120.0)
            system.until_phase("bert-large", "Running")
            system.submit("urgent", chunks=4, seconds=60.0, priorityClassName="tranche-high")
            system.until_phase("urgent", "Running")
            system.submit("vit-base", chunks=6, seconds=80.0, gpus=2)
            system.submit("gpt-mini", chunks=2, seconds=150.0, gpus=4)
            system.until_phase("tabular", "Succeeded")
            system.until("a plan", lambda: system.status("gpt-mini").get("plan", {}).get("estimatedCompletion"))
            time.sleep(3)
            token = visitor_token(cluster)
            for name, size, dark in (("desk", DESK, False), ("dark", DESK, True), ("phone", PHONE, True)):
                with opened(browser, stack.page_url, size, dark, token) as window:
                    window.page.wait_for_selector(".waiting tbody tr" if name == "phone" else ".bar.later a")
                    window.page.screenshot(path=PICTURES / f"page-{name}.png", full_page=name != "phone")
                    window.page.locator(".running tbody a", has_text="bert-large").click()
                    window.page.wait_for_selector("table:has(caption:text-is('Events')) tbody tr")
                    if name == "desk":
                        window.page.screenshot(path=PICTURES / "page-job.png", full_page=True)
            print(f"4 pictures in {PICTURES}")


if __name__ == "__main__":
    main()
