"""Lifecycle of a training worker: batches in order, SIGTERM, termination message, exit code."""

import logging
import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from types import FrameType, TracebackType
from typing import Any, Self

from tranche_worker import chunk_request
from tranche_worker.allocation import Allocation, Iterations
from tranche_worker.assignment import Assignment
from tranche_worker.reporter import LAST_SECONDS, Progress, Reporter
from tranche_worker.stop_flag import StopFlag
from tranche_worker.termination_message import report

logger = logging.getLogger(__name__)

EXIT_DONE, EXIT_UNFINISHED, EXIT_FENCED, EXIT_TERMINATED = 0, 1, 75, 143
"""Exit codes: all chunks are done; the loop ended early; another attempt has taken over; stopped by SIGTERM."""


class Session:
    """Context around the training loop, in the main thread.

    Example::

        with Session(assignment()) as session:
            for chunk, batch in session.batches():
                train(chunk, batch)
                session.trained({chunk: batch + 1})
                if time_to_save:
                    save()
                    session.saved()
            save()
            session.saved()
        sys.exit(session.exit_code)

    If everything is saved after the last batch, the session requests more chunks from the scheduler, and the loop
    continues with these (see `assignment`) while the slot stays with the job. So code that saves at the end of every
    chunk, or trains at a parameter server, needs no new pod for its next chunk.

    After SIGTERM, `batches` ends when the current batch is done; a checkpoint that the code after the loop saves within
    `seconds_left` counts. Reports are sent in the background if this worker reports for its job.
    """

    def __init__(self, mine: Assignment, *, at_server: bool = False, gang: bool = False) -> None:
        """Start where earlier attempts stopped.

        Args:
            mine: The assignment.
            at_server: Whether a parameter server holds the model, so that this process need not save it.
            gang: Whether the job's workers train one model together and report the progress of all with `advanced`.
        """
        self._at_server = at_server
        self._gang = gang
        self._trained: dict[int, float] = {}
        self._begin(mine)
        self._stop = StopFlag()
        self._deadline: float | None = None
        self._fenced = False
        self._has_message = False
        """Whether this session has written a termination message."""
        self._timings: tuple[float | None, float | None, float | None] = (None, None, None)
        self._iterations = Iterations()
        self._reporter: Reporter | None = None
        self._handler: Any = None
        self._process_id: int | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._process_id = os.getpid()
        self._handler = signal.signal(signal.SIGTERM, self._terminate)
        self._reporter = Reporter(self._mine, self.progress, self.refuse, seconds_left=self._report_seconds)
        self._stack.enter_context(self._reporter)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Write the termination message, send the last report, and restore the SIGTERM handler."""
        try:
            with self._stack:
                self._write_termination_message()
        finally:
            signal.signal(signal.SIGTERM, self._handler)

    # ---- remaining work

    def batches(self) -> Iterator[tuple[int, int]]:
        """Yield chunk and number of each remaining batch, until `trained` has recorded all of them.

        Batches that a parameter server has lost are yielded again after `trained` has recorded the smaller number.
        """
        while not self.stopping:
            chunk = next((chunk for chunk in self._mine.chunks if self._trained[chunk] < self._mine.batches), None)
            if chunk is not None:
                yield chunk, int(self._trained[chunk])
            elif not self._receives_more():
                return

    @property
    def assignment(self) -> Assignment:
        """The current chunks."""
        return self._mine

    @property
    def stopping(self) -> bool:
        """Whether to stop after the current batch: after SIGTERM, or when another attempt has taken over."""
        return self._stop.is_set()

    @property
    def seconds_left(self) -> float:
        """Seconds until SIGKILL; infinite before SIGTERM."""
        return float("inf") if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def _report_seconds(self) -> float:
        """Return the time for the last report, in seconds; meanwhile, another job may wait for the GPU."""
        return min(LAST_SECONDS, self._mine.grace_seconds, self.seconds_left)

    def wait(self, seconds: float) -> bool:
        """Wait, for example until a server is back; return True at once if the worker is to stop."""
        return self._stop.wait(seconds)

    # ---- recorded progress

    def trained(self, batches: Mapping[int, float]) -> None:
        """Record the applied batches of chunks, including those of earlier attempts; the number may decrease.

        Chunks of other workers are ignored. The numbers may be scalars of an array library, as in the methods below.
        """
        mine = {chunk: float(count) for chunk, count in batches.items() if chunk in self._trained}
        self._trained.update(mine)
        if self._at_server:
            self._saved.update(mine)

    def advanced(self, part: float) -> None:
        """Record the fraction of all training, from 0 to 1, that a gang's model has seen.

        Call it with the fraction in the checkpoint before the context is entered: the first report overrides the
        progress that the scheduler has recorded.
        """
        self._trained = dict.fromkeys(self._trained, float(part))

    def snapshot(self) -> dict[int, float]:
        """Return the progress at this moment, for `saved` after a checkpoint that is written in the background."""
        return dict(self._trained)

    def saved(self, snapshot: Mapping[int, float] | None = None) -> None:
        """Record that a checkpoint contains what is trained, also for a process that is killed later on.

        Args:
            snapshot: What `snapshot` returned when the state of the checkpoint was copied; None: everything trained so
                far. Chunks of an assignment that has ended since are left out.
        """
        if snapshot is None:
            self._saved = dict(self._trained)
        else:
            self._saved |= {chunk: batches for chunk, batches in snapshot.items() if chunk in self._saved}
        if self._reporter is not None:
            with suppress(OSError):  # the end of the session logs it
                self._leave_progress()

    def timed(self, batch_seconds: float, fetch_seconds: float, compute_seconds: float) -> None:
        """Record the current time per batch, for reports."""
        self._timings = (float(batch_seconds), float(fetch_seconds), float(compute_seconds))

    def iterated(self, worker: int, samples: float, compute_seconds: float, fetch_seconds: float = 0.0) -> None:
        """Record an iteration of any worker of a gang at the member that reports, for `allocations`."""
        self._iterations.record(worker, samples, compute_seconds, fetch_seconds)

    @property
    def allocations(self) -> Mapping[int, Allocation]:
        """Batch sizes by worker, from the last report; empty if the job asks for none, or another member reports."""
        return self._reporter.allocations if self._reporter is not None else {}

    def refuse(self) -> None:
        """Stop without a termination message, because another attempt has taken over."""
        self._fenced = True
        self._stop.set()

    def progress(self) -> Progress:
        """Return the content of a report."""
        return Progress(dict(self._trained), dict(self._saved), *self._timings, self._iterations.dump())

    @property
    def exit_code(self) -> int:
        """Exit code of the process."""
        if self._fenced:
            return EXIT_FENCED
        if all(batches >= self._mine.batches for batches in self._saved.values()):
            return EXIT_DONE
        return EXIT_TERMINATED if self._deadline is not None else EXIT_UNFINISHED

    def _receives_more(self) -> bool:
        """Request more chunks if all current ones are saved; return False if there are none."""
        if any(self._saved[chunk] < self._mine.batches for chunk in self._mine.chunks):
            return False
        try:
            next_assignment = chunk_request.ask(self._mine, self._saved, self._stop)
        except chunk_request.FencedError:
            self.refuse()
            return False
        if next_assignment is not None:
            self._begin(next_assignment)
            with suppress(OSError):
                self._leave_progress()  # the message of the earlier chunks must not count for these
        return next_assignment is not None

    def _begin(self, mine: Assignment) -> None:
        self._mine = mine
        chunks = range(mine.chunk_count) if self._gang else mine.chunks
        self._trained = {chunk: mine.resume.get(chunk, 0) for chunk in chunks}
        self._saved = dict(self._trained)

    def _durable_batches(self) -> dict[int, float]:
        """Return the durable batches of this pod's chunks: integers, or a fraction for a member of a gang."""
        mine = {chunk: self._saved[chunk] for chunk in self._mine.chunks}
        return mine if self._gang else {chunk: int(batches) for chunk, batches in mine.items()}

    def _leave_progress(self) -> None:
        """Write the durable batches into the termination message; a superseded attempt leaves none."""
        if not self._fenced:
            report(self._durable_batches(), self._mine.termination_log)
            self._has_message = True
        elif self._has_message:
            self._mine.termination_log.write_text("")

    def _write_termination_message(self) -> None:
        """Write the durable batches; if that fails, only log it, since the last report contains them too."""
        try:
            self._leave_progress()
        except OSError as error:
            logger.error(
                "the termination message cannot be written to %s: %s; progress that no report contains is lost, so "
                "that the chunks may start again where this attempt started",
                self._mine.termination_log,
                error,
            )

    def _terminate(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process_id:  # a fork, which this session does not stop, has inherited the handler
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
            return
        deadline = time.monotonic() + self._mine.grace_seconds
        self._deadline = deadline if self._deadline is None else min(deadline, self._deadline)
        self._stop.set()
