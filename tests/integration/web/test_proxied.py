"""The page through the API server's service proxy: what gets through of a visitor's token, and where its links lead."""

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from support.installed_cluster import installed_cluster

pytest.importorskip("playwright", reason="the development dependencies are older than this test")

from support.browser import opened, require_chromium, started
from support.full_stack import System
from support.konnectivity_tunnel import Tunnel
from tranche.auth.user_access import AUDIENCE
from tranche.demo.local_stack import Stack
from tranche.demo.page_account import create_visitor, visitor_token
from tranche_testcluster import Cluster, free_port, spawn
from tranche_testcluster.binaries import binary_cache

NAME = "http:tranche-page:10265"
PATH = f"/api/v1/namespaces/default/services/{NAME}/proxy"


@dataclass
class Proxied:
    """A running tranche behind a Service, and `kubectl proxy` of an account that may use that Service only."""

    system: System
    url: str
    """URL of kubectl proxy."""

    def ask(self, path: str, who: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """Ask the API server itself with the token of an account, and with headers of ours; POST if there is a body."""
        cluster = self.system.cluster
        bearer = cluster.kubectl("create", "token", who).strip()
        more = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(
            f"{cluster.url}{PATH}/{path}",
            None if body is None else json.dumps(body).encode(),
            {"Authorization": f"Bearer {bearer}", **more},
        )
        trusted = ssl.create_default_context(cafile=str(cluster.directory / "ca.crt"))
        try:
            with urllib.request.urlopen(request, context=trusted, timeout=60) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    folder = tmp_path_factory.mktemp("egress")
    with Tunnel(folder) as tunnel, installed_cluster(extra_flags={"kube-apiserver": [tunnel.flag]}) as cluster:
        create_visitor(cluster)
        cluster.add_site("edge-a", nodes=1, gpus=2)
        with Stack(cluster, scheduler_options=["--estimate-seconds", "1"]) as stack:
            tunnel.port = stack.page_port  # where the address of the pod below really leads
            expose(cluster)
            system = System(cluster, stack)
            system.submit("steady", chunks=2, seconds=9000.0)
            system.until_phase("steady", "Running")
            path = "/api/v1/namespaces/default/endpoints/tranche-page"
            system.until("an address", lambda: cluster.request("GET", path)[1].get("subsets"))
            port = free_port()
            command = [str(binary_cache.ensure("kubectl")["kubectl"]), "proxy", f"--port={port}"]
            kubeconfig = cluster.service_account_kubeconfig("default", "passer")
            process = spawn([*command, f"--kubeconfig={kubeconfig}"], log=folder / "proxy.log")
            try:
                system.until("kubectl proxy", lambda: "Starting to serve" in (folder / "proxy.log").read_text())
                yield Proxied(system, f"http://127.0.0.1:{port}{PATH}")
            finally:
                process.kill()
                process.wait()


def expose(cluster: Cluster) -> None:
    """A pod where the scheduler would be, a Service as kubectl makes it, and an account that may pass."""
    container = {"name": "scheduler", "image": "x", "ports": [{"containerPort": 10265}]}
    metadata = {"name": "scheduler", "labels": {"app": "tranche-scheduler"}}
    pod = {"metadata": metadata, "spec": {"nodeName": "edge-a-0", "containers": [container]}}
    assert cluster.request("POST", "/api/v1/namespaces/default/pods", pod)[0] == 201
    cluster.kubectl("expose", "pod", "scheduler", "--name=tranche-page", "--port=10265")
    cluster.kubectl("create", "serviceaccount", "passer")
    rule = ("--verb=get", "--resource=services/proxy", f"--resource-name={NAME}")
    cluster.kubectl("create", "role", "pass", *rule)
    cluster.kubectl("create", "rolebinding", "pass", "--role=pass", "--serviceaccount=default:passer")
    cluster.kubectl("create", "serviceaccount", "actor")
    cluster.kubectl("create", "role", "act", "--verb=create", *rule[1:])
    cluster.kubectl("create", "rolebinding", "act", "--role=act", "--serviceaccount=default:actor")
    cluster.kubectl("create", "rolebinding", "edit", "--clusterrole=edit", "--serviceaccount=default:actor")


def test_service_proxy_drops_authorization_and_keeps_page_token(proxied: Proxied) -> None:
    status, told = proxied.ask("v1/overview", "passer")
    assert (status, told["error"].split(":")[0]) == (401, "a token is required")
    token = visitor_token(proxied.system.cluster)
    status, told = proxied.ask("v1/overview", "passer", Tranche_Token=token)
    assert (status, told["user"]) == (200, "system:serviceaccount:default:demo-viewer")
    assert [job["name"] for job in told["running"]["jobs"]] == ["steady"]


def test_who_may_see_the_jobs_may_still_not_use_the_proxy(proxied: Proxied) -> None:
    status, told = proxied.ask("v1/overview", "demo-viewer")
    assert (status, told["reason"]) == (403, "Forbidden")


def test_actions_through_the_proxy_need_create_and_the_origin(proxied: Proxied) -> None:
    cluster = proxied.system.cluster
    path, uid = "v1/jobs/default/steady/actions", proxied.system.job("steady")["metadata"]["uid"]
    token = cluster.kubectl("create", "token", "actor", f"--audience={AUDIENCE}").strip()
    body = {"action": "weight", "uid": uid, "weight": 3}
    headers = {"Tranche_Token": token, "Content_Type": "application/json"}
    status, told = proxied.ask(path, "passer", body, **headers, Tranche_Request="page")
    assert (status, told["reason"]) == (403, "Forbidden"), "the account may only get"
    status, told = proxied.ask(path, "actor", body, **headers)
    assert (status, told["error"]) == (403, "this request needs the header Tranche-Request: page")
    headers["Tranche_Request"] = "page"
    status, told = proxied.ask(path, "actor", body, **headers, Origin="https://evil.example")
    assert (status, told["error"].split(" (")[0]) == (403, "requests of other sites are refused")
    own = cluster.url
    assert proxied.ask(path, "actor", body, **headers, Origin=own) == (200, {"done": "weight"})
    assert proxied.system.job("steady")["spec"]["weight"] == 3


def test_page_under_kubectl_proxy_requests_only_its_service(proxied: Proxied) -> None:
    require_chromium()
    token = visitor_token(proxied.system.cluster)
    with started() as browser, opened(browser, proxied.url, token=token) as window:
        asked: list[str] = []
        window.page.on("request", lambda request: asked.append(request.url))
        window.page.reload()
        window.page.wait_for_selector(".lanes .bar a")
        window.page.locator(".running tbody a", has_text="default/steady").click()
        window.page.wait_for_selector(".job .sentence")
        window.page.wait_for_selector("table:has(caption:text-is('Events')) tbody tr")
        window.page.locator("header h1 a").click()
        window.page.wait_for_selector(".running tbody a")
        assert window.page.url.startswith(f"{proxied.url}/")
        assert {url for url in asked if not url.startswith(f"{proxied.url}/")} == set()
        assert {"page.css", "icon.svg"} <= {url.rpartition("/")[2] for url in asked}
        assert window.faults() == []
