"""Who is where in TF_CONFIG, and how long a worker or parameter server is needed."""

import json
import os
import socket
from collections.abc import Callable, Mapping

PROBE_SECONDS = 2.0
MISSES = 3
"""Probes in a row without an answer, after which the chief is gone."""


def chief_address(environment: Mapping[str, str] = os.environ) -> tuple[str, int]:
    """Host name and port of the chief.

    Raises:
        KeyError: TF_CONFIG names no chief.
    """
    host, _, port = json.loads(environment["TF_CONFIG"])["cluster"]["chief"][0].rpartition(":")
    return host, int(port)


def listens(address: tuple[str, int]) -> bool:
    """Whether somebody accepts connections there."""
    try:
        socket.create_connection(address, timeout=PROBE_SECONDS).close()
    except OSError:
        return False
    return True


def follow(chief: Callable[[], bool], told: Callable[[], bool], pause: Callable[[], object]) -> None:
    """Return when the chief that was there is gone; or, if none has come yet, when this process is told to stop.

    The chief needs the servers until it has saved, and tranche tells all members of a gang to stop at once: so what
    ends a server is the chief's end, not its own SIGTERM.

    Args:
        chief: Whether it listens.
        told: Whether SIGTERM has come.
        pause: Between two looks.
    """
    while not chief():
        if told():
            return
        pause()
    missed = 0
    while missed < MISSES:
        pause()
        missed = 0 if chief() else missed + 1
