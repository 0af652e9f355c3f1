"""Rounds side by side, each in a process of its own, which says on standard output what has come of it."""

import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO

import msgspec

from chaos.outcomes import Outcome
from tranche_testcluster import tethered

LOOK_SECONDS = 0.2


@dataclass(slots=True)
class _Running:
    process: subprocess.Popen[bytes]
    said: IO[bytes]
    began: float = field(default_factory=time.monotonic)


def side_by_side(
    seeds: Iterable[int],
    at_once: int,
    command: Callable[[int], Sequence[str]],
    tick: Callable[[], object] = lambda: None,
) -> Iterator[Outcome]:
    """Run a command for each seed, ``at_once`` at a time; yield the outcomes as the commands end.

    Args:
        seeds: Of the rounds, in the order in which they begin.
        at_once: How many run at a time.
        command: Of a seed; it writes its `Outcome` as JSON. One that ends without has failed.
        tick: Called now and then while nothing ends.
    """
    waiting, running = deque(seeds), dict[int, _Running]()
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                seed = waiting.popleft()
                running[seed] = _begin(command(seed))
            ended = [seed for seed, one in running.items() if one.process.poll() is not None]
            for seed in ended:
                yield _outcome(seed, running.pop(seed))
            if not ended:
                tick()
                time.sleep(LOOK_SECONDS)
    finally:
        for one in running.values():
            one.process.kill()
            one.process.wait()
            one.said.close()


def _begin(command: Sequence[str]) -> _Running:
    """In a session of its own, so that Ctrl-C reaches only this process, which then ends the others."""
    said = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
    return _Running(subprocess.Popen(tethered(command), stdout=said, start_new_session=True), said)


def _outcome(seed: int, one: _Running) -> Outcome:
    one.said.seek(0)
    with one.said:
        text = one.said.read()
    try:
        return msgspec.json.decode(text, type=Outcome)
    except msgspec.DecodeError:
        problem = f"the round's process ended with code {one.process.returncode} and wrote no outcome"
        return Outcome(seed, [], time.monotonic() - one.began, "nothing checked", 0.0, [problem])
