"""Cost of a restart charged as live, at every start of a pod, or only where a job has run before.

``python benchmarks/restart_costs.py`` prints average JCTs in seconds, then relative to no cost, for two logs. The
study behind chunk (docs/explanation/policy-study.md) charged it the second way; the simulator charges it the first
way, as a real pod does.
"""

from dataclasses import dataclass

from job_logs import log_rows
from tranche.model import Job, Node, Site, Window
from tranche.planner import Planner
from tranche.policies import get_policy
from tranche.simulation.cluster_spec import pool
from tranche.simulation.engine.simulation import Simulation, prepare
from tranche.simulation.workload.from_log import gang_jobs
from tranche.state.job import JobState

LOGS = {"elasticflow_cluster06": 128, "helios_venus_vcvGl": 160}
POLICIES = ("srsf", "las")
RESTARTS = (0.0, 60.0, 300.0)


@dataclass(slots=True)
class FirstStartsAreFree(Simulation):
    """Simulation in which a job pays only from its second pod on."""

    def _start(self, state: JobState, window: Window, pace: float) -> None:
        restart = self.restart_seconds
        if not self._accounts[state.job.key].starts:
            self.restart_seconds = 0.0
        Simulation._start(self, state, window, pace)
        self.restart_seconds = restart


def average(
    kind: type[Simulation],
    jobs: list[Job],
    cluster: tuple[tuple[Node, ...], tuple[Site, ...]],
    policy: str,
    restart: float,
) -> float:
    """Return the average JCT in seconds."""
    simulation = kind(Planner(get_policy(policy)), restart, keep_history=False, forget_finished=True)
    prepare(simulation, jobs, *cluster)
    simulation.run()
    return simulation.result().average_jct_seconds


def main() -> None:
    """Measure and print, as a table of Markdown."""
    print("| log | charged | policy | " + " | ".join(f"ρ = {restart:g} s" for restart in RESTARTS) + " |")
    print("|:--|:--|:--|" + "--:|" * len(RESTARTS))
    for log, gpus in LOGS.items():
        cluster = pool(gpus)
        jobs = gang_jobs(log_rows(log), cluster.nodes)
        for kind, name in ((Simulation, "at every start"), (FirstStartsAreFree, "from the second start on")):
            for policy in POLICIES:
                averages = [average(kind, jobs, (cluster.nodes, cluster.sites), policy, rho) for rho in RESTARTS]
                cells = [f"{averages[0]:,.1f}", *(f"× {value / averages[0]:.3f}" for value in averages[1:])]
                print(f"| {log} @{gpus} | {name} | {policy} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
