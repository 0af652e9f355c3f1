"""With fair shares, a tenant that splits its job gains nothing at another tenant's expense."""

from dataclasses import dataclass

from hypothesis import example, given, settings
from hypothesis import strategies as st

from support.builders import job
from tranche.model import Job, PodShape, Resources
from tranche.simulation.cluster_spec import pool
from tranche.simulation.scenario import Scenario, run
from tranche.state.tenant_usage import MARGIN, REVIEW_SECONDS

WORKER = PodShape(Resources(gpus=1, pods=1))
CHUNK_SECONDS = (30.0, 100.0, 300.0, 900.0)


@dataclass(frozen=True)
class Shape:
    """Submission, chunks, seconds of a chunk."""

    at: int
    chunks: int
    seconds: float

    def job(self, name: str, tenant: str) -> Job:
        fields = {"key": f"{tenant}/{name}", "chunks": self.chunks, "seconds": self.seconds, "worker": WORKER}
        return job(name, float(self.at), **fields)  # type: ignore[arg-type]


def average_of_others(jobs: list[Job], gpus: int, policy: str) -> float:
    """Average JCT of the tenant that did not split anything, in seconds."""
    cluster = pool(gpus)
    result = run(Scenario(tuple(jobs), cluster.nodes, cluster.sites, policy))
    assert not result.unfinished
    own = [one.completed - one.submitted for one in result.jobs if one.key.startswith("honest/")]
    return sum(own) / len(own)


def before_and_after(honest: list[Shape], part: Shape, pieces: int, gpus: int, policy: str) -> tuple[float, float]:
    """Return the honest tenant's average JCT beside one job, and beside the same work in ``pieces`` pieces."""
    others = [shape.job(f"h{i}", "honest") for i, shape in enumerate(honest)]
    whole = Shape(part.at, part.chunks * pieces, part.seconds).job("whole", "splitter")
    split = [part.job(f"s{i}", "splitter") for i in range(pieces)]
    return average_of_others([*others, whole], gpus, policy), average_of_others([*others, *split], gpus, policy)


SHAPES = st.builds(Shape, st.integers(0, 2000), st.integers(1, 12), st.sampled_from(CHUNK_SECONDS))


@given(
    honest=st.lists(SHAPES, min_size=1, max_size=4),
    part=st.builds(Shape, st.integers(0, 2000), st.integers(1, 6), st.sampled_from(CHUNK_SECONDS)),
    pieces=st.integers(2, 8),
    gpus=st.integers(1, 4),
)
@example([Shape(0, 12, 300.0)], Shape(0, 3, 300.0), 8, 1)
@settings(max_examples=150)
def test_split_job_delays_other_tenants_by_at_most_the_grain(
    honest: list[Shape], part: Shape, pieces: int, gpus: int
) -> None:
    before, after = before_and_after(honest, part, pieces, gpus, "chunk:fair=1")
    grain = max(shape.seconds for shape in [*honest, part]) + REVIEW_SECONDS
    assert after <= (1 + MARGIN) * before + 2 * grain


def test_splitting_without_fair_shares_delays_the_other_tenant() -> None:
    honest, part = [Shape(0, 12, 300.0)], Shape(0, 3, 300.0)
    before, after = before_and_after(honest, part, 8, 1, "chunk")
    assert (before, after) == (3600.0, 3600.0 + 8 * 900.0)
    before, after = before_and_after(honest, part, 8, 1, "chunk:fair=1")
    assert after - before <= MARGIN * before + 2 * (300.0 + REVIEW_SECONDS)
