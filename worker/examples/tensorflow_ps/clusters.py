"""Addresses in TF_CONFIG, and the lifetime of workers and parameter servers."""

import json
import os
import socket
from collections.abc import Callable, Mapping

PROBE_SECONDS = 2.0
MISSES = 3
"""Number of consecutive failed probes after which the chief counts as gone."""


def chief_address(environment: Mapping[str, str] = os.environ) -> tuple[str, int]:
    """Return host name and port of the chief.

    Raises:
        KeyError: if TF_CONFIG names no chief.
    """
    host, _, port = json.loads(environment["TF_CONFIG"])["cluster"]["chief"][0].rpartition(":")
    return host, int(port)


def listens(address: tuple[str, int]) -> bool:
    """Return whether the address accepts connections."""
    try:
        socket.create_connection(address, timeout=PROBE_SECONDS).close()
    except OSError:
        return False
    return True


def follow(chief: Callable[[], bool], stopping: Callable[[], bool], pause: Callable[[], object]) -> None:
    """Return when the chief has ended or, if none has started yet, when this process gets SIGTERM.

    The chief needs the servers until it has saved, and tranche stops all members of a gang at the same time. So a
    server ends when the chief ends, not at its own SIGTERM.

    Args:
        chief: Returns whether the chief listens.
        stopping: Returns whether this process has received SIGTERM.
        pause: Waits between two probes.
    """
    while not chief():
        if stopping():
            return
        pause()
    missed = 0
    while missed < MISSES:
        pause()
        missed = 0 if chief() else missed + 1
