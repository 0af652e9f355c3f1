"""Records of ended pods of a job, as text of one line each, and of the jobs that a job has preempted.

A job may have thousands of attempts, and its status must stay small. The history of a job is therefore a list of
texts, the oldest dropped first, which the planner packs once and does not parse again. Exact totals count the rest.

A text has ten fields with a space between them, and then the reason in words: number of the attempt, role and index,
node, outcome, exit code, end, seconds of training, seconds of lost work, preemptor, reason. ``-`` stands for an absent
value. Lines of the log follow on lines of their own.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

AttemptRole = Literal["worker", "ps", "chief"]
"""Role of a pod in its job; `ps` is a parameter server."""
KEPT_ATTEMPTS = 64
"""Maximum number of ended attempts in the history of a job."""
KEPT_BYTES = 48 * 1024
"""Maximum size of this history as JSON; long texts shorten the history further."""
KEPT_VICTIMS = 16
"""Maximum number of records of preempted jobs."""
LOG_LINES = 5
"""Maximum number of log lines of a failed attempt."""
LOG_LENGTH = 400
"""Maximum length of these lines together, in characters."""
WHY_LENGTH = 200
"""Maximum length of the reason in words, in characters."""
_NAME_LENGTH = 330
"""Above the length of any node name, outcome or preemptor that Kubernetes accepts."""
_ESCAPED = re.compile("[<>&\u2028\u2029]")
"""Characters that Go's JSON encoder writes as six."""
_NUMBER = r"\d+(?:\.\d+)?"
_LINE = re.compile(
    rf"(?P<attempt>\d+) (?P<role>worker|ps|chief)-(?P<index>\d+) (?P<node>\S+) (?P<reason>\S+) (?P<code>-|-?\d+)"
    rf" (?P<ended>-|\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d\.\dZ) (?P<ran>-|{_NUMBER}) (?P<lost>{_NUMBER})"
    r" (?P<by>\S+)(?: (?P<why>.*))?"
)


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """Outcome of one pod of the job."""

    index: int
    attempt: int
    node: str
    reason: str
    """Outcome (`PodOutcome`), NotStarted, Stopped, or why its containers did not start, such as ErrImagePull."""
    exit_code: int | None = None
    role: AttemptRole = "worker"
    preempted_by: str = ""
    """Job that preempted it, ``namespace/name``, or a foreign pod, ``pod/namespace/name``; empty if neither did."""
    why: str = ""
    """Why it ended: a relative clause about the preemptor, such as "which has less work left", if there is one; else
    a sentence without a subject or a reason of the kubelet; empty if that is unknown."""
    started: float | None = None
    """When it began to train, in seconds on the planner's clock; None if it did not, or if that is unknown."""
    ended: float | None = None
    """When it ended, in seconds on the planner's clock; None in records of earlier versions."""
    lost_seconds: float = 0.0
    """Estimated training time that was lost, because its result was not saved."""
    log: str = ""
    """Last lines of the log of a failed pod, as far as its termination message has them."""


@dataclass(frozen=True, slots=True)
class PreemptedJob:
    """Workers of one job that were stopped for another job at one time."""

    job: str
    """Key of the victim."""
    workers: int
    at: float
    """In seconds on the planner's clock."""


def outcome_class(reason: str) -> str:
    """Return the outcome under which a record counts in the totals."""
    return reason if reason in ("Succeeded", "Preempted", "Failed", "Lost", "Refused", "Stopped") else "NotStarted"


def may_be_of_node(reason: str) -> bool:
    """Return whether the node may be why a pod ended: it failed there, was refused, or its containers did not start."""
    return reason in ("Failed", "Refused") or (reason != "NotStarted" and outcome_class(reason) == "NotStarted")


def pack(record: AttemptRecord) -> str:
    """Return the record as text; `unpack` reads it again, with times in tenths of a second.

    >>> pack(AttemptRecord(2, 7, "n1", "Preempted", 143, preempted_by="ns/b", why="which came earlier", ended=60.0))
    '7 worker-2 n1 Preempted 143 1970-01-01T00:01:00.0Z - 0 ns/b which came earlier'
    """
    code = "-" if record.exit_code is None else str(record.exit_code)
    ended, ran = _moment(record.ended), "-"
    if record.started is not None and record.ended is not None:
        ran = _tenths(record.ended - record.started)
    words = (_word(record.node), _word(record.reason), code, ended, ran, _tenths(record.lost_seconds))
    place = f"{record.attempt} {record.role}-{record.index}"
    first = " ".join((place, *words, _word(record.preempted_by), short_reason(record.why))).rstrip()
    return "\n".join([first, *_lines(record.log)])


def unpack(text: str) -> AttemptRecord | None:
    """Return the record in a text of `pack`; None if it is not one."""
    first, _, log = text.partition("\n")
    match = _LINE.fullmatch(first)
    if match is None:
        return None
    try:
        ended = None if match["ended"] == "-" else datetime.fromisoformat(match["ended"])
    except ValueError:
        return None
    end = ended.timestamp() if ended is not None else None
    return AttemptRecord(
        index=int(match["index"]),
        attempt=int(match["attempt"]),
        node=_unless_absent(match["node"]),
        reason=_unless_absent(match["reason"]),
        exit_code=None if match["code"] == "-" else int(match["code"]),
        role=match["role"],  # type: ignore[arg-type]  # by the pattern
        preempted_by=_unless_absent(match["by"]),
        why=match["why"] or "",
        started=end - float(match["ran"]) if end is not None and match["ran"] != "-" else None,
        ended=end,
        lost_seconds=float(match["lost"]),
        log=log,
    )


def bounded(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the last of these texts that fit into the history of a job."""
    last = tuple(texts)[-KEPT_ATTEMPTS:]
    size = 6 * sum(map(len, last))  # an upper bound
    if size > KEPT_BYTES:
        sizes = [json_bytes(text) for text in last]
        size, first = sum(sizes), 0
        while size > KEPT_BYTES:
            size, first = size - sizes[first], first + 1
        last = last[first:]
    return last


def json_bytes(text: str) -> int:
    """Return an upper bound of the size of a text in JSON, by whatever rules the encoder escapes characters."""
    return len(json.dumps(text)) + 1 + 5 * len(_ESCAPED.findall(text))


def short_reason(why: str) -> str:
    """Return a reason in one line, cut to the length that a record keeps."""
    if len(why) <= WHY_LENGTH and "\n" not in why:
        return why
    why = " ".join(why.split())
    return why if len(why) <= WHY_LENGTH else f"{why[: WHY_LENGTH - 1]}…"


def short_log(text: str) -> str:
    """Return the last lines of a log that a record keeps."""
    return "\n".join(_lines(text))


def _lines(text: str) -> list[str]:
    """Return the last lines, without control characters, cut at the front to `LOG_LENGTH`."""
    if not text:
        return []
    clean = ("".join(c if c.isprintable() else " " for c in line).rstrip() for line in text.splitlines())
    return "\n".join([line for line in clean if line][-LOG_LINES:])[-LOG_LENGTH:].splitlines()


def _word(text: str) -> str:
    return "".join(text.split())[:_NAME_LENGTH] or "-"


def _unless_absent(word: str) -> str:
    return "" if word == "-" else word


def _tenths(seconds: float) -> str:
    return f"{max(0.0, seconds):.1f}".removesuffix(".0") if seconds < 1e12 else "0"


def _moment(at: float | None) -> str:
    """Return a time in RFC 3339 with tenths; ``-`` for None and for times that it cannot express."""
    try:
        time = None if at is None else datetime.fromtimestamp(at, UTC).replace(tzinfo=None)
    except (OverflowError, ValueError, OSError):
        time = None
    return "-" if time is None else f"{time.isoformat('T', 'milliseconds')[:-2]}Z"
