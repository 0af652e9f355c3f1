import json
from pathlib import Path

import pytest

from tranche_worker import assignment, report

ENVIRONMENT = {
    "TRANCHE_JOB": "default/mnist",
    "TRANCHE_ATTEMPT": "7",
    "TRANCHE_CHUNKS": "5,0",
    "TRANCHE_CHUNK_COUNT": "9",
    "TRANCHE_EPOCHS": "2",
    "TRANCHE_BATCHES": "10",
    "TRANCHE_RESUME": "5:12",
    "TRANCHE_CHECKPOINT_DIR": "/checkpoint",
}


def test_a_worker_resumes_each_chunk_where_the_ledger_says() -> None:
    mine = assignment(ENVIRONMENT)
    assert (mine.chunks, mine.attempt, mine.batches) == ((5, 0), 7, 20)
    assert list(mine.remaining(5)) == list(range(12, 20))
    assert list(mine.remaining(0)) == list(range(20))


def test_fraction_of_a_batch_does_not_skip_the_batch() -> None:
    member = assignment({**ENVIRONMENT, "TRANCHE_CHUNKS": "5", "TRANCHE_BATCHES": "1", "TRANCHE_RESUME": "5:0.375"})
    assert list(member.remaining(5)) == [0, 1]


def test_process_without_assignment_raises_missing_variable() -> None:
    with pytest.raises(KeyError, match="TRANCHE_JOB"):
        assignment({})


def test_the_report_is_the_json_that_the_planner_reads(tmp_path: Path) -> None:
    report({5: 20, 0: 3}, tmp_path / "log")
    assert json.loads((tmp_path / "log").read_text()) == {"5": 20, "0": 3}
