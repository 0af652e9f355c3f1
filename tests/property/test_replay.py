"""Planners that receive the same events make the same decisions: live decisions can be replayed offline."""

from hypothesis import given, settings
from hypothesis import strategies as st

from support.builders import job, node, worker
from tranche.planner import JobSubmitted, NodeChanged, Planner, PlannerSettings
from tranche.policies import get_policy
from tranche.simulation import Simulation


@given(
    sizes=st.lists(st.tuples(st.integers(1, 4), st.floats(1, 100), st.floats(0, 200)), min_size=1, max_size=8),
    policy=st.sampled_from(["chunk-faithful", "fifo"]),
)
@settings(max_examples=40)
def test_the_same_events_lead_to_the_same_instructions(sizes: list[tuple[int, float, float]], policy: str) -> None:
    def play() -> list[str]:
        simulation = Simulation(Planner(get_policy(policy), PlannerSettings(seed=3, validate=True)))
        for i in range(3):
            simulation.planner.handle(NodeChanged(node(f"n{i}", gpus=2)), 0.0)
        for i, (chunks, seconds, at) in enumerate(sizes):
            one = job(f"j{i}", at, chunks=chunks, seconds=seconds, servers=1, server=worker(0))
            simulation.at(at, JobSubmitted(one))
        simulation.run()
        return [repr(entry) for entry in simulation.history]

    assert play() == play()
