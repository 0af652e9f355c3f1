"""Prometheus that scrapes processes of this machine while a test runs."""

import json
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from support.waiting import WAIT_SECONDS, eventually
from tranche_testcluster import free_port, spawn

Labels = tuple[tuple[str, str], ...]
SCRAPE_SECONDS = 1
SCRAPED = "timestamp(up)"
"""Time of the last scrape of each target; of another expression than a selector, `timestamp` is that of the query."""


class Prometheus:
    """Prometheus that scrapes every second from when it is entered."""

    def __init__(self, program: Path, folder: Path, targets: Mapping[str, Sequence[str]]) -> None:
        """Store the settings, without starting it.

        Args:
            program: Path of the binary.
            folder: Empty folder for its data.
            targets: Hosts with ports by name of the scrape job.
        """
        self._program = program
        self._folder = folder
        self._targets = targets
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        jobs = [{"job_name": name, "static_configs": [{"targets": [*here]}]} for name, here in self._targets.items()]
        every = {"scrape_interval": f"{SCRAPE_SECONDS}s", "scrape_timeout": f"{SCRAPE_SECONDS}s"}
        config = self._folder / "prometheus.yaml"
        config.write_text(yaml.safe_dump({"global": every, "scrape_configs": jobs}))
        command: list[str | Path] = [
            self._program,
            f"--config.file={config}",
            f"--storage.tsdb.path={self._folder / 'data'}",
        ]
        command += [f"--web.listen-address=127.0.0.1:{self._port}", "--log.level=warn"]
        self._process = spawn(command, log=self._folder / "prometheus.log")
        deadline = time.monotonic() + WAIT_SECONDS
        while len(self._up()) < sum(map(len, self._targets.values())):
            assert time.monotonic() < deadline, (self._folder / "prometheus.log").read_text()
            time.sleep(0.1)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait(WAIT_SECONDS)

    def instant(self, expression: str, at: float) -> dict[Labels, float]:
        """Return values at a moment, by labels."""
        found = self._ask("query", query=expression, time=f"{at:.3f}")
        return {_labels(one): float(one["value"][1]) for one in found}

    def over(self, expression: str, start: float, end: float, step: float) -> dict[Labels, list[tuple[float, float]]]:
        """Return moments and values of a period, by labels."""
        found = self._ask("query_range", query=expression, start=f"{start:.3f}", end=f"{end:.3f}", step=f"{step:g}")
        return {_labels(one): [(float(at), float(value)) for at, value in one["values"]] for one in found}

    def await_scrapes(self, count: int = 2) -> None:
        """Wait until each target has answered this number of scrapes that began after the call."""
        targets = sum(map(len, self._targets.values()))
        for _ in range(count):
            began = time.time()
            eventually(
                lambda began=began: (  # type: ignore[misc]
                    sum(at > began for at in self.instant(f"{SCRAPED} and up == 1", time.time()).values()) == targets
                ),
                f"Prometheus scrapes {targets} targets",
            )

    def _up(self) -> list[Any]:
        try:
            return [one for one in self._ask("query", query="up") if one["value"][1] == "1"]
        except OSError:
            return []

    def _ask(self, what: str, **parameters: str) -> list[Any]:
        url = f"http://127.0.0.1:{self._port}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=WAIT_SECONDS) as reply:
            answer = json.load(reply)
        assert answer["status"] == "success", answer
        return list(answer["data"]["result"])


def _labels(one: Any) -> Labels:
    return tuple(sorted((name, value) for name, value in one["metric"].items() if name != "__name__"))
