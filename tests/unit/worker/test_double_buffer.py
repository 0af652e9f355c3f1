"""Communication beside computation."""

import threading

import pytest

from support.waiting import WAIT_SECONDS
from tranche_worker import DoubleBuffer


def test_answers_come_one_exchange_later_in_order() -> None:
    def tenfold(item: int) -> int:
        return 10 * item

    with DoubleBuffer(tenfold) as buffer:
        assert [buffer.exchange(item) for item in (1, 2, 3)] == [None, 10, 20]
        assert buffer.pending == 1
        assert buffer.flush() == 30
        assert buffer.flush() is None
        assert buffer.pending == 0


def test_the_program_computes_while_an_item_is_sent() -> None:
    sending, computed = threading.Event(), threading.Event()

    def send(item: int) -> int:
        sending.set()
        assert computed.wait(WAIT_SECONDS), "the program was blocked by the exchange"
        return item

    with DoubleBuffer(send) as buffer:
        buffer.exchange(1)
        assert sending.wait(WAIT_SECONDS)
        computed.set()
        assert buffer.flush() == 1


def test_an_error_of_the_item_before_is_raised_once() -> None:
    sent = []

    def send(item: int) -> int:
        sent.append(item)
        if item == 1:
            raise ConnectionError
        return item

    with DoubleBuffer(send) as buffer:
        buffer.exchange(1)
        with pytest.raises(ConnectionError):
            buffer.exchange(2)
        assert buffer.exchange(3) is None
        assert buffer.flush() == 3
    assert sent == [1, 3], "an item behind a failed one is not sent"
