"""Batches that a worker has applied by a moment."""

import pytest

from tranche.state.progress_ledger import applied_in_order


@pytest.mark.parametrize(
    ("trained", "applied"),
    [
        (0.0, {4: 3.0, 1: 0.0, 7: 10.0, 2: 0.0}),
        (2.5, {4: 5.5, 1: 0.0, 7: 10.0, 2: 0.0}),
        (9.0, {4: 10.0, 1: 2.0, 7: 10.0, 2: 0.0}),
        (18.0, {4: 10.0, 1: 10.0, 7: 10.0, 2: 1.0}),
        (99.0, {4: 10.0, 1: 10.0, 7: 10.0, 2: 10.0}),
    ],
)
def test_chunks_are_applied_in_list_order_and_done_ones_are_free(trained: float, applied: dict[int, float]) -> None:
    assert applied_in_order([4, 1, 7, 2], {4: 3.0, 1: 0.0, 7: 10.0, 2: 0.0}, 10.0, trained) == applied
