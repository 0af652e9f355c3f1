"""The life of a training worker: its batches in order, SIGTERM, what it leaves behind, how it exits."""

import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from types import FrameType, TracebackType
from typing import Any, Self

from tranche_worker import chunk_request
from tranche_worker.assignment import Assignment
from tranche_worker.reporter import Progress, Reporter
from tranche_worker.termination_message import report

EXIT_DONE, EXIT_UNFINISHED, EXIT_FENCED, EXIT_TERMINATED = 0, 1, 75, 143
"""All chunks are done; the loop ended before that; another attempt has taken over; stopped by SIGTERM."""


class Session:
    """A context around training, in the main thread.

    As in::

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

    If all that was trained is saved when `batches` has given the last one, the scheduler is asked for more chunks: the
    loop goes on with these (`assignment` says which) as long as the slot stays with the job. So code that saves at the
    end of every chunk, or trains at a parameter server, needs no new pod for its next chunk.

    After SIGTERM `batches` ends when the batch under way is done; what the code after the loop saves within
    `seconds_left` is durable. Reports go out in the background if this worker reports for its job.
    """

    def __init__(self, mine: Assignment, *, at_server: bool = False, gang: bool = False) -> None:
        """Begin where earlier attempts have left off.

        Args:
            mine: The chunks.
            at_server: Whether a parameter server holds what was trained, so that nothing has to be saved here.
            gang: Whether the job's workers train one model together, so that each tells of all, by `advanced`.
        """
        self._at_server = at_server
        self._gang = gang
        self._trained: dict[int, float] = {}
        self._begin(mine)
        self._stop = threading.Event()
        self._deadline: float | None = None
        self._fenced = False
        self._timings: tuple[float | None, float | None, float | None] = (None, None, None)
        self._handler: Any = None
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._handler = signal.signal(signal.SIGTERM, self._terminate)
        self._stack.enter_context(Reporter(self._mine, self.progress, self.refuse))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Leave the termination message, send the last report, give SIGTERM back."""
        try:
            if not self._fenced:
                report(self._left_behind(), self._mine.termination_log)
            self._stack.close()
        finally:
            signal.signal(signal.SIGTERM, self._handler)

    # ---- what is to be done

    def batches(self) -> Iterator[tuple[int, int]]:
        """Chunk and number of each batch that is still to be trained, until `trained` has told of all of them.

        If a parameter server has lost batches, `trained` says so, and they come again.
        """
        while not self.stopping:
            chunk = next((one for one in self._mine.chunks if self._trained[one] < self._mine.batches), None)
            if chunk is not None:
                yield chunk, int(self._trained[chunk])
            elif not self._goes_on():
                return

    @property
    def assignment(self) -> Assignment:
        """The chunks as they are now."""
        return self._mine

    @property
    def stopping(self) -> bool:
        """Whether to stop after the batch under way: SIGTERM, or another attempt has taken over."""
        return self._stop.is_set()

    @property
    def seconds_left(self) -> float:
        """Until SIGKILL; infinite before SIGTERM."""
        return float("inf") if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def wait(self, seconds: float) -> bool:
        """Pause, for instance until a server is back; True at once if the worker is to stop."""
        return self._stop.wait(seconds)

    # ---- what has been done

    def trained(self, batches: Mapping[int, float]) -> None:
        """Say how many batches of chunks the model has seen, those of earlier attempts included; it may be fewer.

        Chunks of others are left out.
        """
        mine = {chunk: count for chunk, count in batches.items() if chunk in self._trained}
        self._trained.update(mine)
        if self._at_server:
            self._saved.update(mine)

    def advanced(self, part: float) -> None:
        """Of a gang: say which part of all training, from 0 to 1, its model has seen.

        What a checkpoint holds at the start is told so too, before the context is entered: the first report wins over
        the scheduler's ledger.
        """
        self._trained = dict.fromkeys(self._trained, part)

    def saved(self) -> None:
        """Say that a checkpoint holds all that was trained."""
        self._saved = dict(self._trained)

    def timed(self, batch_seconds: float, fetch_seconds: float, compute_seconds: float) -> None:
        """Say how long a batch takes at present, for reports."""
        self._timings = (batch_seconds, fetch_seconds, compute_seconds)

    def refuse(self) -> None:
        """Another attempt has taken over: stop, and leave nothing behind."""
        self._fenced = True
        self._stop.set()

    def progress(self) -> Progress:
        """What a report says now."""
        return Progress(dict(self._trained), dict(self._saved), *self._timings)

    @property
    def exit_code(self) -> int:
        """How this process should exit."""
        if self._fenced:
            return EXIT_FENCED
        if all(batches >= self._mine.batches for batches in self._saved.values()):
            return EXIT_DONE
        return EXIT_TERMINATED if self._deadline is not None else EXIT_UNFINISHED

    def _goes_on(self) -> bool:
        """Ask for more chunks, if all is saved; False if there are none."""
        if any(self._saved[chunk] < self._mine.batches for chunk in self._mine.chunks):
            return False
        try:
            given = chunk_request.ask(self._mine, self._saved, self._stop)
        except chunk_request.FencedError:
            self.refuse()
            return False
        if given is not None:
            self._begin(given)
        return given is not None

    def _begin(self, mine: Assignment) -> None:
        self._mine = mine
        told = range(mine.chunk_count) if self._gang else mine.chunks
        self._trained = {chunk: mine.resume.get(chunk, 0) for chunk in told}
        self._saved = dict(self._trained)

    def _left_behind(self) -> dict[int, float]:
        """What is durable of this pod's chunks: whole batches, but of a gang a part of its one."""
        mine = {chunk: self._saved[chunk] for chunk in self._mine.chunks}
        return mine if self._gang else {chunk: int(batches) for chunk, batches in mine.items()}

    def _terminate(self, number: int, frame: FrameType | None) -> None:
        self._deadline = time.monotonic() + self._mine.grace_seconds
        self._stop.set()
