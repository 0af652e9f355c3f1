import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tranche.kube.api.fields import MAX_CHUNKS
from tranche.model import format_chunks, parse_chunks

chunk_sets = st.frozensets(st.integers(0, MAX_CHUNKS - 1))


@given(chunk_sets)
def test_what_is_written_is_read_back(chunks: frozenset[int]) -> None:
    assert parse_chunks(format_chunks(chunks)) == chunks


@given(st.lists(st.integers(0, 50)))
def test_order_and_repetition_do_not_matter(chunks: list[int]) -> None:
    assert format_chunks(chunks) == format_chunks(sorted(set(chunks)))


@given(chunk_sets)
def test_ranges_are_sorted_and_as_long_as_they_can_be(chunks: frozenset[int]) -> None:
    ends = [[int(end) for end in part.split("-")] for part in format_chunks(chunks).split(",") if part]
    for before, after in itertools.pairwise(ends):
        assert before[-1] + 1 < after[0]
    assert all(first < last for first, last in (end for end in ends if len(end) == 2))


@pytest.mark.parametrize(
    ("chunks", "text"),
    [([], ""), ([7], "7"), ([0, 1], "0-1"), ([0, 2], "0,2"), ([3, 0, 1, 2, 14], "0-3,14"), (range(2000), "0-1999")],
)
def test_the_form_is_short(chunks: list[int], text: str) -> None:
    assert format_chunks(chunks) == text
    assert parse_chunks(text) == frozenset(chunks)


def test_the_longest_form_fits_the_field_of_the_status() -> None:
    assert len(format_chunks(range(0, MAX_CHUNKS, 2))) <= 16_384


@pytest.mark.parametrize("text", ["a", "1-", "-1", "1-b", "1;2", "0x3"])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        parse_chunks(text)
