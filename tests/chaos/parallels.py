"""Several rounds at a time, each in a process of its own, which writes its outcome to standard output."""

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
    output: IO[bytes]
    began: float = field(default_factory=time.monotonic)


def side_by_side(
    seeds: Iterable[int],
    at_once: int,
    command: Callable[[int], Sequence[str]],
    tick: Callable[[], object] = lambda: None,
) -> Iterator[Outcome]:
    """Run a command for each seed, ``at_once`` at a time; yield the outcomes as the commands end.

    Args:
        seeds: Seeds of the rounds, in the order in which they begin.
        at_once: Number of rounds at a time.
        command: Returns the command for a seed, which writes its `Outcome` as JSON; without output it has failed.
        tick: Called periodically while no round ends.
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
            one.output.close()


def _begin(command: Sequence[str]) -> _Running:
    """Start a command in a session of its own, so that Ctrl-C reaches only this process, which ends the others."""
    output = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
    return _Running(subprocess.Popen(tethered(command), stdout=output, start_new_session=True), output)


def _outcome(seed: int, one: _Running) -> Outcome:
    one.output.seek(0)
    with one.output:
        text = one.output.read()
    try:
        return msgspec.json.decode(text, type=Outcome)
    except msgspec.DecodeError:
        problem = f"the round's process ended with code {one.process.returncode} and wrote no outcome"
        return Outcome(seed, [], time.monotonic() - one.began, "nothing checked", 0.0, [problem])
