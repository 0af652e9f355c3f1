"""Communication of one batch beside the computation of the next."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Generic, Self, TypeVar

Sent = TypeVar("Sent")
Received = TypeVar("Received")


class DoubleBuffer(Generic[Sent, Received]):
    """Context in which one item is sent in a thread while the program computes the next one.

    Items are sent in order, one at a time. A gradient is therefore computed from parameters that lack the batch before
    it: one batch older than without the buffer.

    Example::

        with DoubleBuffer(send) as buffer:
            for batch in batches:
                answer = buffer.exchange(gradient(parameters, batch))  # the answer to the batch before
                parameters = parameters if answer is None else answer
            parameters = buffer.flush()
    """

    def __init__(self, send: Callable[[Sent], Received]) -> None:
        """Store the function that sends an item and returns its answer; it runs in a thread of its own."""
        self._send = send
        self._thread = ThreadPoolExecutor(1, "tranche-exchange")
        self._in_flight: Future[Received] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._thread.shutdown()

    @property
    def pending(self) -> int:
        """Number of items without an answer, 0 or 1."""
        return int(self._in_flight is not None)

    def exchange(self, item: Sent) -> Received | None:
        """Wait for the answer to the item before, start to send this one, and return that answer; None if none.

        If the item before has failed, this raises its error, and this item is not sent.
        """
        answer = self.flush()
        self._in_flight = self._thread.submit(self._send, item)
        return answer

    def flush(self) -> Received | None:
        """Wait for the answer to the last item and return it; None if there is none. Raises the error of that item."""
        in_flight, self._in_flight = self._in_flight, None
        return None if in_flight is None else in_flight.result()
