"""Records of ended pods as text: what is packed is read again, and the history stays within its limits."""

import json
from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tranche.model import AttemptRecord
from tranche.model.attempt_record import (
    KEPT_ATTEMPTS,
    KEPT_BYTES,
    LOG_LENGTH,
    LOG_LINES,
    bounded,
    json_bytes,
    pack,
    short_log,
    unpack,
)

FULL = AttemptRecord(
    index=12,
    attempt=345,
    node="edge-a-1",
    reason="Preempted",
    exit_code=143,
    role="worker",
    preempted_by="default/small",
    why="which has less work left",
    started=1_763_842_686.5,
    ended=1_763_842_716.5,
    lost_seconds=12.5,
)
NAMES = st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,60}[a-z0-9])?", fullmatch=True)
TENTHS = st.integers(0, 10**11).map(lambda tenths: tenths / 10)
RECORDS = st.builds(
    AttemptRecord,
    index=st.integers(0, 2000),
    attempt=st.integers(0, 10**9),
    node=NAMES,
    reason=st.sampled_from(["Succeeded", "Preempted", "Failed", "Lost", "Refused", "NotStarted", "ErrImagePull"]),
    exit_code=st.none() | st.integers(-1, 255),
    role=st.sampled_from(["worker", "ps", "chief"]),
    preempted_by=st.just("") | st.tuples(NAMES, NAMES).map("/".join),
    why=st.text(max_size=400),
    started=st.none() | TENTHS,
    ended=st.none() | TENTHS,
    lost_seconds=TENTHS,
    log=st.text(max_size=3000),
)


def test_packed_record_is_one_readable_line() -> None:
    place, times = "345 worker-12 edge-a-1 Preempted 143", "2025-11-22T20:18:36.5Z 30 12.5"
    assert pack(FULL) == f"{place} {times} default/small which has less work left"


@pytest.mark.parametrize(
    "record",
    [
        FULL,
        replace(FULL, started=None),
        replace(FULL, ended=None, started=None),
        AttemptRecord(0, 1, "n1", "Succeeded", 0),
        AttemptRecord(0, 1, "", "Failed", 1, role="ps", why="OOMKilled", log="Traceback\n  x"),
    ],
)
def test_packed_record_is_read_again(record: AttemptRecord) -> None:
    assert unpack(pack(record)) == record


@given(RECORDS)
def test_any_record_is_read_again(record: AttemptRecord) -> None:
    again = unpack(pack(record))
    assert again is not None
    assert (again.attempt, again.role, again.index, again.node) == (
        record.attempt,
        record.role,
        record.index,
        record.node,
    )
    assert (again.reason, again.exit_code, again.preempted_by) == (
        record.reason,
        record.exit_code,
        record.preempted_by,
    )
    assert unpack(pack(again)) == again
    if record.ended is not None:
        assert again.ended == pytest.approx(record.ended, abs=0.11)
        assert again.lost_seconds == pytest.approx(record.lost_seconds, abs=0.06)


@pytest.mark.parametrize("text", ["", "x", "1 worker-0 n1", "1 staging-0 n1 Failed 1 - - 0 -", "\n\n"])
def test_text_of_another_form_is_no_record(text: str) -> None:
    assert unpack(text) is None


@pytest.mark.parametrize("at", [inf, -inf, 1e300])
def test_time_beyond_the_calendar_is_left_out(at: float) -> None:
    again = unpack(pack(replace(FULL, ended=at, lost_seconds=inf)))
    assert again is not None
    assert again.ended is None


def test_log_is_cut_to_its_last_lines() -> None:
    log = short_log("".join(f"step {n}\x00\n\n" for n in range(50)))
    assert log.splitlines() == [f"step {n}" for n in range(50 - LOG_LINES, 50)]
    assert len(short_log("x" * 10_000)) == LOG_LENGTH


@given(st.lists(RECORDS.map(pack), max_size=200))
def test_history_stays_within_its_limits(texts: list[str]) -> None:
    kept = bounded(texts)
    assert list(kept) == texts[len(texts) - len(kept) :]
    assert len(kept) <= KEPT_ATTEMPTS
    assert sum(map(json_bytes, kept)) <= KEPT_BYTES
    # Go escapes these characters besides those that JSON has to escape.
    escaped = json.dumps(list(kept), ensure_ascii=False)
    for char in "<>&\u2028\u2029":
        escaped = escaped.replace(char, f"\\u{ord(char):04x}")
    assert len(escaped.encode()) <= KEPT_BYTES + 2 * KEPT_ATTEMPTS + 2


def test_usual_history_is_kept_in_full() -> None:
    texts = [pack(replace(FULL, attempt=n)) for n in range(500)]
    assert bounded(texts) == tuple(texts[-KEPT_ATTEMPTS:])


def test_long_texts_shorten_the_history() -> None:
    texts = [pack(replace(FULL, attempt=n, why="<" * 400, log="é" * 9000)) for n in range(KEPT_ATTEMPTS)]
    kept = bounded(texts)
    assert 10 < len(kept) < KEPT_ATTEMPTS
    assert kept[-1] == texts[-1]
