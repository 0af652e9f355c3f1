"""The status of a job with 2,000 chunks and thousands of attempts fits into an object of the API server."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from support.builders import job
from tranche.kube.api.fields import MAX_ATTEMPT_TEXT, MAX_CHUNKS
from tranche.kube.api.resources import Plan, Progress
from tranche.kube.convert.attempt_history import ended_attempts
from tranche.kube.convert.size_limit import MAX_TEMPLATE_BYTES
from tranche.kube.convert.trainingjob import plan_status, progress_status, read_progress
from tranche.model import AttemptRecord, Checkpoint, JobPlan, JobProgress, Window, WindowState
from tranche.model.attempt_record import KEPT_ATTEMPTS, KEPT_BYTES, KEPT_VICTIMS
from tranche.state import progress_ledger
from tranche.state.job import JobState

ETCD_BYTES = 1536 * 1024
"""Maximum size of a request to etcd by default."""
HISTORY_BYTES = KEPT_BYTES + 16 * 1024
"""Bound of all that the history of attempts adds to a status: texts, the last five as fields, totals, victims."""
NAMES = st.sampled_from(["n1", "edge-a-1", "ip-10-0-12-34.eu-central-1.compute.internal", "n" * 253])
RECORDS = st.builds(
    AttemptRecord,
    index=st.integers(0, 1999),
    attempt=st.integers(0, 10**6),
    node=NAMES,
    reason=st.sampled_from(["Succeeded", "Preempted", "Failed", "Lost", "ErrImagePull", "x" * 2000]),
    exit_code=st.none() | st.integers(0, 255),
    role=st.sampled_from(["worker", "ps", "chief"]),
    preempted_by=st.sampled_from(["", "default/small", "pod/" + "n" * 63 + "/" + "p" * 253]),
    why=st.text(max_size=200),
    started=st.none() | st.floats(0, 2e9),
    ended=st.floats(0, 2e9),
    lost_seconds=st.floats(0, 1e6),
    log=st.text(max_size=400),
)
VICTIMS = st.tuples(st.sampled_from(["a/b", "n" * 63 + "/" + "j" * 50]), st.integers(1, 2000), st.floats(0, 2e9))


def size(status: Any) -> int:
    """Return the size of the status as Go writes it, which escapes three characters more than JSON has to."""
    text = json.dumps(status, ensure_ascii=False, separators=(",", ":"))
    return len(text.encode()) + 5 * sum(map(text.count, "<>&"))


def written(progress: JobProgress) -> dict[str, Any]:
    return progress_status(progress, job("a", chunks=MAX_CHUNKS), 0.0, estimated=False)


@settings(max_examples=15)
@given(
    st.lists(RECORDS, min_size=1, max_size=12), st.integers(1, 100), st.lists(VICTIMS, max_size=40), st.integers(1, 9)
)
def test_random_histories_stay_within_their_bound(
    kinds: list[AttemptRecord], times: int, victims: list[tuple[str, int, float]], step: int
) -> None:
    state = JobState(job("a", chunks=MAX_CHUNKS))
    for number in range(times * len(kinds)):
        progress_ledger.note(state, kinds[number % len(kinds)])
        if number % step == 0:
            progress_ledger.progress_of(state, 1.0)
    for name, workers, at in victims:
        progress_ledger.note_victim(state, name, workers, at)
    progress = progress_ledger.progress_of(state, 1.0)
    status = written(progress)
    assert size(status) - size(written(JobProgress())) <= HISTORY_BYTES
    assert len(status["history"]) <= KEPT_ATTEMPTS
    assert all(len(text) <= MAX_ATTEMPT_TEXT for text in status["history"])
    assert len(status["victims"]) <= KEPT_VICTIMS
    assert sum(status["attemptTotals"].values()) == times * len(kinds)
    known = Progress.model_validate(status)
    assert len(ended_attempts(known)) == len(status["history"])
    again = read_progress(known)
    assert (again.history, again.ended) == (progress.history, progress.ended)


def test_largest_job_with_a_full_history_fits_into_etcd() -> None:
    chunks, state = range(MAX_CHUNKS), JobState(job("a", chunks=MAX_CHUNKS))
    for number in range(5000):
        why = "which has the higher priority class tranche-high"
        record = AttemptRecord(0, number, "ip-10-0-12-34.compute.internal", "Failed", 1, why=why, log="<" * 400)
        progress_ledger.note(state, record)
    progress = progress_ledger.progress_of(state, 1.0)
    partial = {chunk: chunk + 0.123456 for chunk in chunks}
    full = JobProgress(
        partial=partial,
        checkpoint=Checkpoint(1, partial),
        records=progress.records,
        history=progress.history,
        ended=progress.ended,
    )
    windows = tuple(
        Window(
            index=chunk,
            attempt=10_000 + chunk,
            site="edge-site-a",
            node="ip-10-0-12-34.compute.internal",
            chunks=(chunk,),
            start=1.8e9,
            end=1.8e9,
            state=WindowState.CLOSING,
            generation=12,
            preempted_by="research/a-job-of-another-team",
            why="which has the higher priority class tranche-high",
        )
        for chunk in chunks
    )
    plan = plan_status(JobPlan(1, "x" * 2048, windows=windows), "u" * 36, 1, 1)
    Plan.model_validate(plan)
    assert sum("why" in one for one in plan["workers"]) < len(windows), "reasons have a bound of their own"
    whole = size({"plan": plan, "progress": written(full)})
    assert whole + MAX_TEMPLATE_BYTES < ETCD_BYTES, f"{whole} bytes"
