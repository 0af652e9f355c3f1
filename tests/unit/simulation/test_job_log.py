"""Readers of job logs, on the real logs and on broken ones."""

import contextlib
import csv
import gzip
import lzma
import os
import re
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from job_logs import TRACES
from tranche.simulation.job_log import LAYOUTS, Trace, TraceError, TraceRow, read_rows, read_trace, reader

NOBODY = 65534
HEADER = "job_id,submit_time,num_gpu,duration"
REAL = {
    "elasticflow_cluster01.csv": ("plain", 1_595),
    "elasticflow_cluster02.csv": ("plain", 5_778),
    "elasticflow_cluster04.csv": ("plain", 15_802),
    "elasticflow_cluster06.csv": ("plain", 2_396),
    "helios_venus_vcvGl.csv": ("plain", 1_452),
    "philly.csv.gz": ("philly", 82_247),
    "tiresias_60.csv": ("tiresias", 60),
}


def rows(*lines: str, **options: str) -> Trace:
    return read_rows([HEADER, *lines], "log.csv", **options)  # type: ignore[arg-type]


def complaint(*lines: str, **options: str) -> str:
    with pytest.raises(TraceError) as caught:
        read_rows(lines, "log.csv", **options)  # type: ignore[arg-type]
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    return message


@pytest.mark.parametrize("name", sorted(REAL))
def test_a_real_log_keeps_its_jobs_and_its_gpu_hours(name: str) -> None:
    opened = gzip.open if name.endswith(".gz") else open
    with opened(TRACES / name, "rt", newline="") as text:
        own = list(csv.DictReader(text))
    trace = read_trace(TRACES / name)
    assert (trace.layout, len(trace.rows)) == REAL[name]
    assert len(own) == len(trace.rows)
    assert trace.problems == ()
    hours = sum(int(row["num_gpu"]) * int(row["duration"]) for row in own) / 3600
    assert sum(row.gpus * row.duration_seconds for row in trace.rows) / 3600 == pytest.approx(hours, rel=1e-12)
    by_id = {row.job_id: row for row in trace.rows}
    for row in own:
        read = by_id[row["job_id"]]
        assert (read.submit_seconds, read.tenant) == (float(row["submit_time"]), row.get("vc", ""))
        assert read.model == row.get("model_name", "")


def test_the_order_of_columns_is_free_and_others_are_left_alone() -> None:
    trace = read_rows(["user,duration, num_gpu ,job_id,submit_time", "ann,60,2,7,5"], "log.csv")
    assert trace == Trace((TraceRow("7", 5.0, 2, 60.0),), "plain", ())


def test_layout_is_detected_from_header_unless_given() -> None:
    log = ["job_id,submit_time,num_gpu,duration,vc,model_name,iterations", "1,0,1,10,red,vgg,5"]
    traces = {layout: read_rows(log, "log.csv", layout=layout) for layout in LAYOUTS}
    assert {layout: trace.layout for layout, trace in traces.items()} == {
        "auto": "tiresias",
        "philly": "philly",
        "plain": "plain",
        "tiresias": "tiresias",
    }
    assert {layout: (t.rows[0].tenant, t.rows[0].model) for layout, t in traces.items()} == {
        "auto": ("", "vgg"),
        "philly": ("red", ""),
        "plain": ("", ""),
        "tiresias": ("", "vgg"),
    }


def test_jobs_are_sorted_by_submission_then_id() -> None:
    trace = rows("b,5,1,1", "10,5,1,1", "9,5,1,1", "a,5,1,1", "last,6,1,1", "007,5,1,1", "7,5,1,1", "z,0,1,1")
    assert [row.job_id for row in trace.rows] == ["z", "007", "7", "9", "10", "a", "b", "last"]


def test_reader_accepts_comments_blank_lines_bom_quotes_and_crlf() -> None:
    log = [
        "\ufeff# a log\r\n",
        "\r\n",
        '"job_id",submit_time,num_gpu,duration\r\n',
        "  # more\r\n",
        '"a,b",0.5,2.0,1e2\r\n',
    ]
    assert read_rows(log, "log.csv").rows == (TraceRow("a,b", 0.5, 2, 100.0),)
    assert read_rows([line.encode() for line in log], "log.csv").rows == (TraceRow("a,b", 0.5, 2, 100.0),)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("1,0,1,-5", "duration '-5' must be seconds above 0"),
        ("1,0,1,0", "duration '0' must be seconds above 0"),
        ("1,0,1,5e-324", "duration '5e-324' is shorter than a microsecond: durations are in seconds"),
        ("1,0,1,nan", "duration 'nan' must be seconds above 0"),
        ("1,0,1,inf", "duration 'inf' must be seconds above 0"),
        ("1,0,1,", "duration '' is not a number"),
        ("1,-1,1,5", "submit_time '-1' must be seconds from 0"),
        ("1,nan,1,5", "submit_time 'nan' must be seconds from 0"),
        ("1,inf,1,5", "submit_time 'inf' must be seconds from 0"),
        ("1,1700000000000,1,5", "submit_time '1700000000000' must be seconds from 0"),
        ("1,1_0,1,5", "submit_time '1_0' is not a number"),
        ("1,0,0,5", "num_gpu '0' must be a whole number from 1"),
        ("1,0,-2,5", "num_gpu '-2' must be a whole number from 1"),
        ("1,0,1.5,5", "num_gpu '1.5' must be a whole number from 1"),
        ("1,0,nan,5", "num_gpu 'nan' must be a whole number from 1"),
        ("1,0,inf,5", "num_gpu 'inf' must be a whole number from 1"),
        ("1,0,1e30,5", "num_gpu '1e30' must be a whole number from 1"),
        ("1,0,four,5", "num_gpu 'four' is not a number"),
        (",0,1,5", "job_id '' must have 1 to 253 printable characters"),
        ("a\x1b[2J,0,1,5", r"job_id 'a\x1b[2J' must have 1 to 253 printable characters"),
        ("0,0,1,5", "job_id '0' appears twice"),
        ("1,0,1", "has 3 cells, but the header has 4"),
        ("1,0,1,5,6", "has 5 cells, but the header has 4"),
        ('"1,0,1,5', "is not a valid CSV row"),
    ],
)
def test_bad_row_is_reported_with_its_line_and_skipped_on_demand(row: str, words: str) -> None:
    log = (HEADER, "# comment", "0,0,1,1", row, "2,0,1,1")
    message = complaint(*log)
    assert message.startswith("log.csv, line 4: ")
    assert words in message
    skipped = read_rows(log, "log.csv", on_error="skip")
    assert [r.job_id for r in skipped.rows] == ["0", "2"]
    assert skipped.problems == (message,)


def test_an_open_quotation_mark_does_not_swallow_the_rows_below() -> None:
    trace = rows('"1,0,1,5', "2,0,1,1", '3",0,1,1', on_error="skip")
    assert [row.job_id for row in trace.rows] == ["2", '3"']
    assert trace.problems[0].startswith("log.csv, line 2: ")


@pytest.mark.parametrize("on_error", ["stop", "skip"])
def test_what_is_wrong_with_the_whole_log_always_stops(on_error: str) -> None:
    assert "is empty" in complaint(on_error=on_error)
    assert "is empty" in complaint("# only a comment", "", on_error=on_error)
    assert "no job can be read below the header" in complaint(HEADER, on_error=on_error)
    assert complaint("job_id,num_gpu,duration", "1,1,1", on_error=on_error).startswith(
        "log.csv, line 1: the header lacks submit_time: it is 'job_id,num_gpu,duration'"
    )
    semicolons = complaint(HEADER.replace(",", ";"), "1;0;1;1", on_error=on_error)
    assert semicolons.endswith("; separate the columns by commas, not by semicolons")
    assert "the header has the column job_id twice" in complaint(f"{HEADER},job_id", on_error=on_error)
    assert "lacks vc (layout philly)" in complaint(HEADER, "1,0,1,1", layout="philly", on_error=on_error)
    assert "there is no layout 'slurm': choose one of auto, " in complaint(HEADER, layout="slurm", on_error=on_error)


def test_a_log_without_any_good_row_says_the_first_reason() -> None:
    message = complaint(HEADER, "1,0,1,-1", "2,0,1,-1", on_error="skip")
    assert "the first of 2: log.csv, line 2: duration '-1'" in message


def test_more_problems_than_anybody_reads_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "KEPT_PROBLEMS", 2)
    trace = rows("0,0,1,1", *["x"] * 5, on_error="skip")
    assert len(trace.problems) == 3
    assert trace.problems[-1] == "log.csv: 3 more rows were left out"


def test_too_many_jobs_are_rejected_with_the_line_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MAX_JOBS", 2)
    assert rows("1,0,1,1", "2,0,1,1").layout == "plain"
    assert "line 4: more than 2 jobs: cut the log" in complaint(HEADER, "1,0,1,1", "2,0,1,1", "3,0,1,1")


def failure(path: Path) -> str:
    with pytest.raises(TraceError) as caught:
        read_trace(path, on_error="skip")
    message = str(caught.value)
    assert message.isprintable()
    return message


def test_a_file_of_ten_gigabytes_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "huge.csv"
    with path.open("wb") as file:
        file.truncate(10 * 2**30)  # sparse: takes no room
    assert re.search(r"huge.csv: has 10.0 GiB, more than 2 GiB: cut it, such as by head", failure(path))


def test_a_pipe_that_never_ends_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MAX_BYTES", 1000)
    path = tmp_path / "pipe"
    os.mkfifo(path)

    def write() -> None:
        with contextlib.suppress(BrokenPipeError), path.open("w") as pipe:
            pipe.write(f"{HEADER}\n")
            for number in range(100_000):
                pipe.write(f"{number},0,1,1\n")

    writer = threading.Thread(target=write)
    writer.start()
    message = failure(path)
    writer.join()
    assert "pipe: more than" in message
    assert "cut it" in message


def test_what_is_no_readable_file_is_refused(tmp_path: Path) -> None:
    assert "is a directory: name a file in it" in failure(tmp_path)
    assert failure(tmp_path / "none.csv").endswith("none.csv: No such file or directory")
    assert failure(tmp_path / "two\nlines").endswith("No such file or directory")
    assert "null" in failure(Path("a\0b"))
    (tmp_path / "empty.csv").touch()
    assert "is empty" in failure(tmp_path / "empty.csv")


def test_a_file_without_permission_is_refused() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        path = Path(folder) / "secret.csv"
        path.touch()
        assert "is empty" in failure(path)
        with without_rights_of_root():
            assert "is empty" in failure(path)
        path.chmod(0)
        with without_rights_of_root():
            assert failure(path).endswith("Permission denied")


@contextlib.contextmanager
def without_rights_of_root() -> Iterator[None]:
    """Read files as another user if this process runs as root, which may read every file."""
    own = os.geteuid()
    if own == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(own)


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress], ids=["gzip", "xz"])
def test_compressed_log_has_the_rows_of_the_log(compress: Callable[[bytes], bytes], tmp_path: Path) -> None:
    text = f"{HEADER}\n1,0,1,5\n2,3,4,6\n".encode()
    plain, packed = tmp_path / "log.csv", tmp_path / "packed"
    plain.write_bytes(text)
    packed.write_bytes(compress(text))
    assert read_trace(packed) == read_trace(plain)
    assert len(read_trace(packed).rows) == 2


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress], ids=["gzip", "xz"])
def test_damaged_compressed_log_is_refused(compress: Callable[[bytes], bytes], tmp_path: Path) -> None:
    whole = compress(HEADER.encode() + b"\n" + b"".join(b"%d,0,1,%d\n" % (n, n * n + 1) for n in range(1000)))
    path = tmp_path / "log.csv.gz"
    middle = len(whole) // 2
    for damaged in (whole[:middle], whole[:-6], whole[:middle] + b"\xff" * 8 + whole[middle + 8 :]):
        path.write_bytes(damaged)
        assert "log.csv.gz: cannot be decompressed: " in failure(path)


def test_compressed_log_is_limited_by_its_uncompressed_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MAX_BYTES", 1000)
    path = tmp_path / "log.csv.gz"
    path.write_bytes(gzip.compress(f"{HEADER}\n".encode() + b"# a comment\n" * 100))
    assert path.stat().st_size < 1000
    assert "log.csv.gz: more than" in failure(path)


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.csv.zip"
    path.write_bytes(b"PK\x03\x04\xff\xff")
    assert "line 1: is not text in UTF-8: unpack or convert the file first" in failure(path)
    path.write_bytes(b"0" * (reader.MAX_LINE + 1))
    assert "line 1: is longer than 1,048,576 bytes: this is not a job log" in failure(path)
    path.write_bytes(f"{HEADER}\n1,0,1,1\n".encode() + b"\xff,0,1,1\n")
    trace = read_trace(path, on_error="skip")
    assert [row.job_id for row in trace.rows] == ["1"]
    assert trace.problems == (f"{path}, line 3: is not text in UTF-8: unpack or convert the file first",)


CELLS = st.sampled_from(
    ["", "0", "1", "-1", "2.5", "nan", "1e999", "9" * 400, '"', '"a"', "#", " ", "\u0663", "\ud800"]
)
HEADERS = st.sampled_from([[], [HEADER], [f"{HEADER},vc"]])
LINES = st.lists(st.one_of(st.text(max_size=60), st.lists(CELLS, max_size=6).map(",".join)), max_size=8)


def attempt(lines: list[str] | list[bytes], **options: str) -> Trace | None:
    """The trace, or None if the reader complained, in one line; any other exception fails the test."""
    complaints = []
    try:
        return read_rows(lines, "log.csv", **options)  # type: ignore[arg-type]
    except TraceError as error:
        complaints.append(str(error))
    assert all(text.isprintable() and text.startswith("log.csv") for text in complaints)
    return None


@settings(max_examples=300)
@given(
    st.sampled_from([[], [HEADER], [f"{HEADER},vc"]]),
    LINES,
    st.sampled_from(LAYOUTS),
    st.sampled_from(["stop", "skip"]),
)
@example([HEADER], ["1,0," + "9" * 5000 + ",1"], "auto", "stop")
@example([HEADER], ["9" * 253 + ",0,1,1", "1,0,1,1"], "auto", "stop")
def test_any_text_gives_rows_or_one_line_of_complaint(
    header: list[str], lines: list[str], layout: str, on_error: str
) -> None:
    trace = attempt([*header, *lines], layout=layout, on_error=on_error)
    if trace is None:
        return
    assert trace.rows
    assert all(row.gpus >= 1 and 0 < row.duration_seconds < 1e12 and row.submit_seconds >= 0 for row in trace.rows)
    assert len({row.job_id for row in trace.rows}) == len(trace.rows)


@settings(max_examples=200)
@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_give_rows_or_one_line_of_complaint(content: bytes, with_header: bool) -> None:
    lines = (HEADER.encode() + b"\n" if with_header else b"") + content
    trace = attempt(lines.splitlines(keepends=True), on_error="skip")
    assert trace is None or all(problem.isprintable() for problem in trace.problems)
