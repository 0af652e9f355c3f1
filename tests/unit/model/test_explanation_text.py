"""Moments in sentences can be separated from the rest."""

import pytest

from tranche.model import expected, free_gpus, until, without_moments
from tranche.model.explanation_text import as_what_if

DAY = 86_400.0


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (None, ""),
        (100.0, " until 00:01:40Z"),
        (DAY + 100.0, " until 1970-01-02 00:01:40Z"),
        (2000 * 365 * DAY, " until far in the future"),
    ],
)
def test_until_includes_the_date_for_another_day(at: float | None, text: str) -> None:
    assert until(at, 10.0) == text


@pytest.mark.parametrize("at", [None, 100.0, DAY + 100.0, 300 * 365 * DAY, 2000 * 365 * DAY])
def test_sentence_without_moments_is_equal_for_any_moment(at: float | None) -> None:
    sentence = f"waits for 1 GPU at edge-a{until(at, 10.0)}, behind a/until-12"
    assert without_moments(sentence) == "waits for 1 GPU at edge-a, behind a/until-12"
    assert without_moments(f"waits for 4 GPUs at once{free_gpus(3)}{until(at, 10.0)}") == "waits for 4 GPUs at once"
    assert without_moments(f"next in the queue: 1 GPU{expected(at, 10.0)}") == "next in the queue: 1 GPU"


@pytest.mark.parametrize(
    ("at", "text"),
    [(None, ""), (100.0, ", expected at 00:01:40Z"), (2000 * 365 * DAY, ", expected far in the future")],
)
def test_expected_time_is_shown_unless_it_is_unknown(at: float | None, text: str) -> None:
    assert expected(at, 10.0) == text


@pytest.mark.parametrize(
    ("sentence", "workers", "told"),
    [
        ("2 workers (2 at a); 0 of 4 chunks done, 0 % trained", 2, "would start at once: 2 workers (2 at a)"),
        ("3 workers (3 at a); 0 of 3 members done, 0 % trained; x", 3, "would start at once: 3 workers (3 at a); x"),
        ("waits for 1 GPU at a, behind a/waits", 0, "would wait for 1 GPU at a, behind a/waits"),
        ("no node has 64 GPUs for a worker", 0, "no node has 64 GPUs for a worker"),
    ],
)
def test_what_if_has_the_explanation_in_the_conditional(sentence: str, workers: int, told: str) -> None:
    assert as_what_if(sentence, workers) == told
