"""Replay without preemption of jobs whose code may not resume."""

from dataclasses import replace

from support.builders import job, node
from tranche.model import Site
from tranche.replay.export import Export
from tranche.replay.pod_history import PastRun
from tranche.replay.replay import Replay, ReplaySettings, replay
from tranche.simulation.cluster_spec import ClusterSpec

CLUSTER = ClusterSpec("one", (node("n"),), (Site("edge-a"),))


def replayed(*, foreign: bool) -> Replay:
    """Replay a long job, of another scheduler or not, and a short one that arrives later, on one GPU."""
    long, short = job("long", seconds=1000.0), job("short", 100.0, seconds=10.0)
    past = {
        long.key: PastRun(long.key, 0.0, 0.0, 1000.0, 1, 1000.0, "Succeeded", is_foreign=foreign),
        short.key: PastRun(short.key, 100.0, 1000.0, 1010.0, 1, 10.0, "Succeeded"),
    }
    return replay(Export((long, short), (), past), CLUSTER, replace(ReplaySettings(("srsf",)), never_preempt=True))


def test_never_preempt_keeps_jobs_of_other_schedulers_only() -> None:
    for foreign in (True, False):
        simulated = replayed(foreign=foreign).rows[1]
        assert (simulated.policy, simulated.summary.preemptions) == ("srsf", 0 if foreign else 1)
