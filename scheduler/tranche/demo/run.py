"""The demo: start the cluster, submit the jobs of the log, watch them, and compare with simulations."""

import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote

from rich.console import Console

from tranche.auth.user_access import AUDIENCE
from tranche.demo import workload
from tranche.demo.cluster_snapshot import API, Copy, Snapshot, observe_copies
from tranche.demo.live_screen import Screen, Step
from tranche.demo.local_stack import Stack, apply_manifests
from tranche.demo.machine_load import ProcessorTimes
from tranche.demo.page_account import NAME as VISITOR
from tranche.demo.page_account import create_visitor, visitor_token
from tranche.demo.submission import journal_of, outcome_of, replay
from tranche.demo.summary import Outcome, report
from tranche.live.journal_file import JournalError
from tranche.policies import get_policy
from tranche_testcluster import Cluster, ClusterError, Scaling, ensure

GRACE_SECONDS = 120.0
"""Time after the latest possible end of all jobs before the demo gives up, in seconds."""
WATCH_SECONDS = 1.0
"""Interval between two checks whether a process has ended, in seconds."""
COPIES_SECONDS = 2.0
"""Interval between two reads of the busy links in seconds; each reads the scheduler's metrics."""


class DemoError(Exception):
    """The demo cannot continue; the message has the reason."""


@dataclass(frozen=True, slots=True)
class DemoSettings:
    """Settings of the demo."""

    policy: str = "chunk"
    """Policy of the planner."""
    seed: int = 1
    """Seed for what the log does not contain."""
    slower: float = 1.0
    """Factor on all times of the jobs, arrivals and work."""
    keep: bool = False
    """Leave everything running until Ctrl-C."""
    directory: Path | None = None
    """Directory for logs and data; None: a temporary directory."""
    picture: Path | None = None
    """File for an SVG of the screen when half of the jobs are done."""


@dataclass(slots=True)
class _Copies:
    """Last read busy links, and the time of the read."""

    at: float = -COPIES_SECONDS
    links: tuple[Copy, ...] = ()


def run(console: Console, settings: DemoSettings) -> bool:
    """Run the demo; True if every job succeeded.

    Raises:
        DemoError: a process does not start, ends early, or the jobs take too long.
    """
    try:
        return _run(console, settings)
    except (ClusterError, JournalError) as error:
        raise DemoError(str(error)) from error
    except (ConnectionError, TimeoutError) as error:
        raise DemoError(f"the API server does not respond ({error}): was the machine asleep?") from error


def _run(console: Console, settings: DemoSettings) -> bool:
    compression = workload.Compression().slowed(settings.slower)
    jobs = workload.load(settings.seed, compression, gangs=get_policy(settings.policy).traits.supports_gangs)
    together = sum(job.gang for job in jobs)
    console.print(
        f"[bold]tranche demo[/]: {len(jobs)} jobs of a real log ({len(jobs) - together} in chunks with a parameter "
        f"server, {together} gangs), with compressed times, on a real Kubernetes control plane with simulated nodes: "
        f"{len(workload.EDGE_SITES)} edge sites and a cloud with nodes on demand (seed {settings.seed})"
    )
    with ExitStack() as stack:
        with Step(console, "control plane"):
            cluster = stack.enter_context(Cluster(settings.directory))
        with Step(console, "CRDs, RBAC, sites"):
            apply_manifests(cluster)
            create_sites(cluster)
            create_visitor(cluster)
        journal_of(cluster).unlink(missing_ok=True)
        options = ["--estimate-seconds", "3", "--seed", str(settings.seed), "--journal", str(journal_of(cluster))]
        with Step(console, "autoscaler of the cloud"):
            for scaling in scalings():
                cluster.start_autoscaler(scaling)
        with Step(console, "scheduler, kube-scheduler, operator"):
            ours = stack.enter_context(Stack(cluster, settings.policy, scheduler_options=options))
        outcome = _watch(console, cluster, ours, jobs, settings.picture)
        report(console, outcome, settings.policy, settings.seed)
        _next_steps(console, cluster, ours, settings.keep)
        if settings.keep:
            _wait_for_interrupt(console, ours)
    return len(outcome.completed) == len(jobs)


def create_sites(cluster: Cluster) -> None:
    """Create the nodes and Site objects of the demo cluster."""
    for site in workload.SITES:
        if not site.unlimited:
            cluster.add_site(site.name, nodes=site.nodes, gpus=site.gpus)
        other_sites = [other for other in workload.SITES if other != site]
        body = {
            "apiVersion": "tranche.dev/v1alpha1",
            "kind": "Site",
            "metadata": {"name": site.name},
            "spec": {
                "tier": site.tier,
                **({"unlimited": True, "nodeStartup": workload.NODE_STARTUP} if site.unlimited else {}),
                "nodeSelector": {"topology.kubernetes.io/zone": site.name},
                "links": [
                    {"to": other.name, "bandwidth": site.link_to(other), "latency": workload.LINK_LATENCY}
                    for other in other_sites
                ],
            },
        }
        status, answer = cluster.request("POST", f"{API}/sites", body)
        if status != 201:
            raise ClusterError(f"Site {site.name} was rejected: {answer}")


def scalings() -> list[Scaling]:
    """Return the autoscaler settings of the demo cluster."""
    return [
        Scaling(
            site.name,
            gpus=site.gpus,
            start_seconds=workload.NODE_SECONDS,
            idle_seconds=workload.IDLE_SECONDS,
            most_nodes=workload.MAX_NODES,
        )
        for site in workload.SITES
        if site.unlimited
    ]


def _watch(
    console: Console, cluster: Cluster, ours: Stack, jobs: list[workload.DemoJob], picture: Path | None
) -> Outcome:
    """Submit the jobs at their times and update the screen until all have ended."""
    work = sum(job.chunks * job.chunk_seconds for job in jobs)
    unsaved, copies, before = [picture] if picture else [], _Copies(), ProcessorTimes.read()
    with Screen(console, len(jobs), ours.policy) as screen:

        def show(seconds: float, snapshot: Snapshot) -> None:
            if seconds - copies.at >= COPIES_SECONDS:
                copies.at, copies.links = seconds, observe_copies(ours.planner_url)
            snapshot = replace(snapshot, copies=copies.links)
            screen.show(seconds, snapshot)
            if unsaved and 2 * snapshot.phases["Succeeded"] >= len(jobs):
                screen.save(unsaved.pop(), seconds, snapshot)

        snapshot, submitted = replay(cluster, ours, jobs, jobs[-1].arrival_seconds + work + GRACE_SECONDS, show)
    load = ProcessorTimes.read().load_since(before)
    return replace(outcome_of(cluster, snapshot, submitted, workload.CHECKPOINT_SECONDS, scalings()), load=load)


def _next_steps(console: Console, cluster: Cluster, ours: Stack, keep: bool) -> None:
    """Print commands to inspect the running demo."""
    if not keep:
        console.print("[dim]make demo KEEP=1 leaves it running, to look around with kubectl and the API.[/]")
        return
    console.print("\n[bold]The page[/], already logged in:")
    console.print(f"  {ours.page_url}/#token={visitor_token(cluster)}", highlight=False, soft_wrap=True)
    console.print("\n[bold]Look around[/] in a second terminal (everything stops when this command does):")
    for line in look_around(cluster, ours):
        console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)
    console.print("The log has one line for each decision; the journal has each window, as JSON lines.")


def look_around(cluster: Cluster, ours: Stack) -> list[str]:
    """Return commands for another shell; the first two lines set up the cluster, kubectl and its plugin."""
    command = f"kubectl create token {VISITOR} --audience {AUDIENCE}"
    job = workload.load(0)[0].name
    programs = f"{Path(sys.executable).parent}:{ensure('kubectl')['kubectl'].parent}"
    return [
        f"export KUBECONFIG={quote(str(cluster.kubeconfig))}",
        f"export PATH={quote(programs)}:$PATH",
        "kubectl get trainingjobs -o wide",
        "kubectl get sites",
        "kubectl tranche queue",
        f"kubectl describe trainingjob {job}",
        f"curl -H 'Authorization: Bearer '$({command}) {ours.page_url}/v1/jobs",
        f"curl {ours.planner_url}/metrics",
        f"grep default/{job} {quote(str(ours.log('scheduler')))}",
        f"tail -n 3 {quote(str(journal_of(cluster)))}",
        f"less {quote(str(ours.log('scheduler')))} {quote(str(ours.log('operator')))}",
    ]


def _wait_for_interrupt(console: Console, ours: Stack) -> None:
    """Wait for Ctrl-C, and report processes that end before it."""
    console.print("Ctrl-C stops everything.")
    reported = set[str]()
    try:
        while True:
            report_ended(console, ours, reported)
            time.sleep(WATCH_SECONDS)
    except KeyboardInterrupt:
        console.print("stopping")


def report_ended(console: Console, ours: Stack, reported: set[str]) -> None:
    """Print each process that has ended, once, with the command that starts it again.

    Args:
        console: Console to print on.
        ours: Processes of tranche, on their cluster.
        reported: Names of the processes that were reported; it is updated.
    """
    for name, code in ours.ended().items():
        if name not in reported:
            reported.add(name)
            how = f"was killed by signal {-code}" if code < 0 else f"has ended with exit code {code}"
            console.print(f"\n[bold red]{name} {how}.[/] To start it again, type in another terminal:")
            console.print(f"  {ours.command_line(name)}", markup=False, highlight=False, soft_wrap=True)
