"""The PyTorch and TensorFlow examples as real processes, preempted by the production planner for a more urgent job."""

from pathlib import Path

import pytest

from support.frameworks import python_of
from support.gang_trial import GRACE_SECONDS, TENSORFLOW, TORCH, Example, Trial, run

SEED = 3


@pytest.mark.parametrize("example", [TORCH, TENSORFLOW], ids=lambda example: example.framework)
def test_preempted_gang_resumes_with_every_batch_counted_once(example: Example, tmp_path: Path) -> None:
    try:
        python_of(example.framework)
    except FileNotFoundError as error:
        pytest.skip(str(error))
    result = run(Trial(example, SEED, preemptions=1), tmp_path)
    assert result.counts == [1] * example.batches
    assert [kind for kind, _ in result.moments] == ["preempt"]
    assert result.preemptions == example.members
    assert 0 < result.moments[0][1] <= result.seen[0] <= result.resumed[0] < example.batches
    assert len(result.stopping) == example.members
    assert max(result.stopping) < GRACE_SECONDS
    assert (result.reported > 1, result.refused) == (True, 0)
