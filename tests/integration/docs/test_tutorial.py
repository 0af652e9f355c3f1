"""docs/tutorial/first-job.md, typed as it is written on the sites of the demo, to the first finished job and beyond."""

import re
from collections.abc import Iterator

import pytest

from support.doc_shell import Shell
from support.installed_release import Release
from support.typed_commands import TUTORIAL, typed_by
from tranche.demo.run import create_sites, scalings
from tranche_testcluster import Cluster

pytestmark = pytest.mark.walkthrough

COMMANDS = typed_by(TUTORIAL, "docs/tutorial/first-job.md")


@pytest.fixture(scope="module")
def own() -> Iterator[Cluster]:
    with Cluster() as cluster:
        cluster.add_site("system")  # for the release, which is installed before the sites of the demo are created
        cluster.start_scheduler()
        for scaling in scalings():
            cluster.start_autoscaler(scaling)
        yield cluster


def test_the_tutorial_leads_to_finished_jobs(own: Cluster, shell: Shell) -> None:
    install, *rest = COMMANDS
    assert install.startswith("helm install ")
    assert "is installed in the namespace tranche-system" in shell.run(install)
    create_sites(own)
    with Release(own):
        said = {command: shell.run(command) for command in rest}
    assert "planned completion" in said["kubectl tranche whatif -f docs/samples/first.yaml"]
    assert "trainingjob.tranche.dev/first created" in said["kubectl apply -f docs/samples/first.yaml"]
    assert re.search(r"waits|worker|chunks|planned", said["kubectl tranche why first"])
    assert said["kubectl get trainingjob first -o jsonpath='{.status.progress.chunks}'"] == "4/4"
    assert said["kubectl tranche history first"].count("Succeeded") >= 2
    assert re.search(r"second .*behind default/long", said["kubectl tranche queue"])
    history = said["kubectl tranche history long"]
    assert len(re.findall(r"Preempted +143 .*default/short", history)) == 2, history
    assert said[rest[-1]].count("deleted") == 4
    assert own.kubectl("get", "trainingjobs", "-A", "-o", "name") == ""


def test_a_command_that_fails_is_seen(shell: Shell) -> None:
    with pytest.raises(AssertionError, match="missing"):
        shell.run("kubectl get trainingjob missing")
