import json
import socket
from collections.abc import Callable, Iterator

import pytest

from tensorflow_ps.clusters import MISSES, chief_address, follow, listens


def test_the_chief_is_where_tf_config_says() -> None:
    cluster = {"chief": ["cats-chief-0.cats.lab.svc:2222"], "worker": ["w:1"], "ps": ["p:2"]}
    config = json.dumps({"cluster": cluster, "task": {"type": "ps", "index": 0}})
    assert chief_address({"TF_CONFIG": config}) == ("cats-chief-0.cats.lab.svc", 2222)


def test_listens_is_true_only_for_an_open_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = ("127.0.0.1", server.getsockname()[1])
        assert listens(address)
    assert not listens(address)


def looks(*answers: bool) -> tuple[Callable[[], bool], Iterator[bool]]:
    """Answers in turn, and those that were not asked for."""
    left = iter(answers)
    return lambda: next(left), left


def nothing() -> None:
    """No pause: the answers are the time."""


def test_a_server_outlives_sigterm_until_the_chief_is_gone() -> None:
    chief, left = looks(False, True, True, True, *[False] * MISSES, True)
    look, untold = looks(False, *[True] * 9)
    follow(chief, look, nothing)
    assert list(left) == [True], "it has looked until the chief was gone, and no longer"
    assert len(list(untold)) == 9, "SIGTERM is no matter once the chief has come"


def test_one_missed_answer_is_not_the_chiefs_end() -> None:
    chief, left = looks(True, *[False] * (MISSES - 1), True, *[False] * MISSES)
    follow(chief, lambda: True, nothing)
    assert list(left) == []


@pytest.mark.parametrize("waited", [0, 3])
def test_a_server_that_waits_for_its_chief_ends_at_sigterm(waited: int) -> None:
    look, left = looks(*[False] * waited, True)
    follow(lambda: False, look, nothing)
    assert list(left) == []
