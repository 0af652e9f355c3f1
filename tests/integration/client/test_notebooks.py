"""The output in docs/how-to/notebooks.md is the real output; and waiting handles failures."""

import asyncio
import doctest
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.full_stack import System
from support.waiting import WAIT_SECONDS
from tranche.client import Client, ClusterError, JobFailed, ManifestError, NoSuchJob, WaitedTooLong
from tranche.web.job_views import JobDetail

PAGE = Path(__file__).resolve().parents[3] / "docs/how-to/notebooks.md"


@pytest.fixture
def client(system: System) -> Iterator[Client]:
    with Client(kubeconfig=str(system.cluster.kubeconfig)) as made:
        yield made


def test_the_page_shows_what_happens(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(system.cluster.kubeconfig))
    text = PAGE.read_text().replace("\n```", "\n\n")
    found = doctest.DocTestParser().get_doctest(text, {}, "notebooks", None, 0)
    said: list[str] = []
    result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(found, out=said.append)
    assert (result.failed, result.attempted > 10) == (0, True), "".join(said)
    system.delete("digits")


def test_waiting_tells_each_state_and_ends_with_the_job(system: System, client: Client) -> None:
    system.submit("followed", seconds=600.0)
    seen: list[JobDetail] = []

    def note(job: JobDetail) -> None:
        """Note a state, and end the worker when it is seen to run."""
        seen.append(job)
        if job.phase == "Running":
            system.end_workers("followed")

    done = client.wait("followed", timeout=WAIT_SECONDS, progress=True, on_change=note)
    assert done.phase == "Succeeded"
    assert seen[-1] == done
    assert "Running" in {job.phase for job in seen}
    system.delete("followed")


def test_a_failed_job_raises_and_says_why(system: System, client: Client) -> None:
    system.submit("broken", seconds=0.2, exit_code=3, runPolicy={"backoffLimit": 0})
    with pytest.raises(JobFailed, match=r"broken in namespace default has failed: .*backoffLimit"):
        client.wait("broken", timeout=WAIT_SECONDS)
    system.delete("broken")


def test_waiting_ends_in_time_and_with_the_deletion_of_the_job(system: System, client: Client) -> None:
    system.submit("endless", seconds=300.0)
    with pytest.raises(WaitedTooLong, match=r"has not ended after 0\.5 s; it continues"):
        client.wait("endless", timeout=0.5)
    deleting = threading.Timer(1.0, system.delete, ("endless",))
    deleting.start()
    with pytest.raises(NoSuchJob):
        client.wait("endless", timeout=WAIT_SECONDS)
    deleting.join()
    system.until("gone", lambda: not system.job("endless"))


def test_waiting_outlives_a_broken_connection(system: System) -> None:
    system.submit("resumed", chunks=1, seconds=600.0)
    with system.cluster.proxy() as proxy, ThreadPoolExecutor() as pool:

        def disturb() -> None:
            """Cut the watch of the client, which may not be there yet, before the job ends."""
            system.until("a watch is cut", proxy.cut)
            system.end_workers("resumed")

        kubeconfig = system.cluster.service_account_kubeconfig("tranche-system", "tranche-operator", url=proxy.url)
        with Client("default", kubeconfig=str(kubeconfig)) as client:
            system.until_phase("resumed", "Running")
            disturbing = pool.submit(disturb)
            assert client.wait("resumed", timeout=WAIT_SECONDS).phase == "Succeeded"
            disturbing.result()
    system.delete("resumed")


def test_a_client_works_where_an_event_loop_runs_already(client: Client) -> None:
    async def cell() -> list[str]:
        return [job.name for job in client.queue()]

    assert asyncio.run(cell()) == []


def test_a_job_is_submitted_to_the_namespace_that_is_meant(client: Client) -> None:
    manifest = {"apiVersion": "tranche.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "x"}, "spec": {}}
    with pytest.raises(ManifestError, match="is for namespace there, not here"):
        client.submit({**manifest, "metadata": {"name": "x", "namespace": "there"}}, "here")
    with pytest.raises(ManifestError, match=r"spec.workers"):
        client.submit(manifest)
    workers = {"maxReplicas": 1, "template": {"spec": {"containers": [{"name": "t", "image": "x"}]}}}
    with pytest.raises(ClusterError, match='namespaces "nowhere" not found'):
        client.submit({**manifest, "spec": {"workers": workers}}, "nowhere")
