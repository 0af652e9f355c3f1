"""Sentences about stopped pods."""

from datetime import UTC, datetime

import pytest

from tranche.model.stop_text import duration_text, stop_text

LESS = "which has less work left"
LATER = datetime(2026, 11, 22, 14, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("by", "why", "lost", "resumes", "text"),
    [
        ("", "", 0.0, None, ""),
        ("", "suspended by spec.suspend", 0.0, None, "suspended by spec.suspend"),
        ("", "node n1 is drained", 3.0, LATER, "node n1 is drained; about 3 s of work lost"),
        ("ns/b", LESS, 0.0, None, f"preempted by ns/b, {LESS}; no work lost"),
        (
            "ns/b",
            LESS,
            12.3,
            LATER,
            f"preempted by ns/b, {LESS}; about 12 s of work lost; resumes at about 2026-11-22 14:05:00Z",
        ),
        ("pod/ns/x", "", 0.0, None, "preempted by pod/ns/x; no work lost"),
    ],
)
def test_sentence_has_cause_cost_and_next_start(
    by: str, why: str, lost: float, resumes: datetime | None, text: str
) -> None:
    assert stop_text(by, why, lost, resumes) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.123, "0.12 s"), (5.0, "5 s"), (12.4, "12 s"), (1200.0, "20 min"), (5400.0, "1.5 h")]
)
def test_durations_have_the_unit_of_their_size(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
