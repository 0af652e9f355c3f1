"""The numpy example under the production planner: real processes on one machine, some of them stopped on the way.

The planner opens windows and places the server; their environment is made by the
operator's own functions; the server reports to the real report API, whose TokenReview alone is a stand-in. Kubernetes'
part, starting and ending processes, is simulated here.
"""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from numpy_ps import chunks, states
from numpy_ps.models import Network
from numpy_ps.server import COUNTS
from support.builders import node
from support.builders import planner as planner_of
from support.extender_objects import worker as pod_of
from support.report_server import served
from tranche.kube.api.core_types import Pod
from tranche.kube.api.resources import PlannedParameterServer, PlannedWindow, TrainingJob
from tranche.kube.convert.pod_identity import may_report_progress, may_request_chunks
from tranche.kube.convert.trainingjob import plan_status, progress_status, to_job
from tranche.live.chunk_requests import ChunkRequestQueue
from tranche.live.planner_inbox import ReportInbox
from tranche.model import JobProgress, Window
from tranche.planner import (
    CloseWindow,
    Event,
    Instruction,
    JobSubmitted,
    OpenWindow,
    Outcome,
    ParameterServerEnded,
    PlaceParameterServer,
    Tick,
    WorkerEnded,
    WorkerStarted,
)
from tranche.planner.handlers.progress import training_progress
from tranche_operator.manifests import environment
from tranche_testcluster import free_port

ROOT = Path(__file__).resolve().parents[2]
KEY = "ns/digits"
BATCHES_PER_EPOCH = 13
POLL_SECONDS = 0.02
SAMPLE_SECONDS, LONGEST_SECONDS = 0.2, 600.0
Role = Literal["worker", "ps"]


@dataclass(frozen=True, slots=True)
class Trial:
    """Settings of one run."""

    seed: int
    epochs: int = 30
    chunks: int = 6
    workers: int = 3
    preemptions: int = 0
    """Number of workers to stop, by SIGTERM and SIGKILL in turn."""
    server_kills: int = 0
    checkpoint_batches: int = 50
    communication: dict[str, Any] = field(default_factory=dict)
    """spec.communication of the job."""
    parts: int = 1
    """Mini-batches in one gradient."""

    @property
    def batches(self) -> int:
        """Number of batches of all chunks."""
        return self.chunks * self.epochs * BATCHES_PER_EPOCH


@dataclass(slots=True)
class Result:
    """Result of a run."""

    loss: float
    """Loss of the final parameters on all data."""
    curve: list[tuple[int, float]]
    """Batches in the model, and its loss, over time."""
    applied: Counter[tuple[int, int]]
    """Number of times that each (chunk, batch) is in the final model."""
    repeated: int
    """Number of batches that were applied again, because the server lost them."""
    unsaved: list[int]
    """Batches since the last checkpoint at each loss of the server."""
    progress: JobProgress
    """The planner's ledger."""
    reported: list[float]
    """Batches by the planner's estimate after each report."""
    stopped: list[tuple[Role, int]]
    """Processes that were stopped during the run, with the signals."""
    endings: Counter[int]
    """Exit codes of workers; negative: the signal."""
    seconds: float


@dataclass(slots=True, eq=False)
class _Process:
    role: Role
    entry: PlannedWindow | PlannedParameterServer
    popen: "subprocess.Popen[bytes]"
    folder: Path
    stopped: int = 0
    """Signal that it was sent."""


def run(trial: Trial, directory: Path) -> Result:
    """Train to the end.

    Raises:
        TimeoutError: The job is not done in time.
    """
    return asyncio.run(_Run(trial, directory).play())


def resource(trial: Trial, progress: dict[str, Any] | None = None, plan: dict[str, Any] | None = None) -> TrainingJob:
    """Return the job as its user would write it."""

    def template(**requests: str) -> dict[str, Any]:
        return {"spec": {"containers": [{"name": "main", "resources": {"requests": requests}}]}}

    spec = {
        "data": {"chunks": trial.chunks, "epochs": trial.epochs, "batchesPerChunk": BATCHES_PER_EPOCH},
        "workers": {"maxReplicas": trial.workers, "template": template(**{"nvidia.com/gpu": "1", "cpu": "1"})},
        "parameterServers": {"template": template(cpu="1")},
        "model": {"stepTime": "10ms", "gradientSize": "14440"},
        **({"communication": trial.communication} if trial.communication else {}),
    }
    metadata = {"name": KEY.partition("/")[2], "namespace": "ns", "uid": f"uid-{KEY.partition('/')[2]}"}
    return TrainingJob.model_validate(
        {"metadata": metadata, "spec": spec, "status": {"progress": progress, "plan": plan}}
    )


@dataclass
class _Run:
    trial: Trial
    directory: Path
    processes: list[_Process] = field(default_factory=list)
    curve: list[tuple[int, float]] = field(default_factory=list)
    reported: list[float] = field(default_factory=list)
    stopped: list[tuple[Role, int]] = field(default_factory=list)
    endings: Counter[int] = field(default_factory=Counter)
    pods: dict[str, Pod] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.began = time.monotonic()
        nodes = [node(f"n{i}", "cluster") for i in range(self.trial.workers)] + [node("ps", "cluster", gpus=0)]
        self.planner = planner_of("chunk", nodes)
        self.inbox = ReportInbox(self.planner, self.now)
        self.inbox.restored = True
        self.draw = random.Random(self.trial.seed)
        self.port = free_port()
        self.diary = self.directory / "diary"
        self.diary.touch()
        (self.directory / "checkpoint").mkdir()
        chunks.stage(self.directory / "data", self.trial.chunks)
        held = [chunks.load(self.directory / "data", chunk) for chunk in range(self.trial.chunks)]
        self.x, self.y = np.concatenate([x for x, _ in held]), np.concatenate([y for _, y in held])
        self.due = self._disturbances()

    def now(self) -> float:
        return time.monotonic() - self.began

    def _disturbances(self) -> list[tuple[float, Role, int]]:
        """Return the disturbances in order: number of applied batches, role, signal."""
        stops: list[tuple[Role, int, int, int]] = [
            *(
                ("worker", n, self.trial.preemptions, (signal.SIGTERM, signal.SIGKILL)[n % 2])
                for n in range(self.trial.preemptions)
            ),
            *(("ps", n, self.trial.server_kills, signal.SIGKILL) for n in range(self.trial.server_kills)),
        ]
        return sorted((self._moment(n, count), role, number) for role, n, count, number in stops)

    def _moment(self, number: int, count: int) -> float:
        return self.trial.batches * (0.1 + 0.75 * (number + self.draw.uniform(0.2, 0.8)) / count)

    async def play(self) -> Result:
        jobs = {KEY: resource(self.trial)}
        self.chunk_requests = ChunkRequestQueue(self.planner, jobs, self.now, lambda: None)
        self.jobs = jobs
        async with served(self.pods, jobs, self.inbox, self.chunk_requests, self.now) as self.api:
            try:
                await self._drive()
            finally:
                for process in self.processes:
                    process.popen.kill()
                    process.popen.wait()
        return self._result()

    async def _drive(self) -> None:
        self._tell(JobSubmitted(to_job(resource(self.trial))))
        state = self.planner.cluster.jobs[KEY]
        sampled = 0.0
        while not state.finished:
            if self.now() > LONGEST_SECONDS:
                raise TimeoutError(f"{self.trial}: {self.planner.progress_of(KEY)}")
            for process in [process for process in self.processes if process.popen.poll() is not None]:
                self._ended(process)
            if reports := self.inbox.drain():
                self._tell(*reports)
                self.reported.append(training_progress(state, self.now()).batches)
            self._tell(*self.chunk_requests.drain())
            self._disturb()
            self._tell(Tick())
            if self.now() - sampled > SAMPLE_SECONDS:
                sampled = self.now()
                await asyncio.to_thread(self._sample)
            await asyncio.sleep(POLL_SECONDS)
        for process in self.processes:  # as the operator does when the job is done: the server saves
            process.popen.terminate()
        for process in self.processes:
            await asyncio.to_thread(process.popen.wait, 20)

    def _tell(self, *events: Event) -> None:
        for instruction in self.planner.handle_all(events, self.now()):
            self._execute(instruction)
        plan = plan_status(self.planner.plan_of(KEY, self.now()), resource(self.trial).metadata.uid, 1, 1)
        self.jobs[KEY] = resource(self.trial, plan=plan)
        self.chunk_requests.settle(KEY)

    def _execute(self, instruction: Instruction) -> None:
        match instruction:
            case OpenWindow(window=window):
                self._start("worker", _entry(window))
                self._tell(WorkerStarted(KEY, window.attempt, self.now()))
            case CloseWindow(window=window):
                for process in self._of("worker"):
                    if process.entry.attempt == window.attempt:
                        self._stop(process, signal.SIGTERM)
            case PlaceParameterServer(server=server):
                entry = PlannedParameterServer(index=server.index, attempt=server.attempt, site=server.site)
                self._start("ps", entry)
            case _:
                pass

    # ---- processes

    def _start(self, role: Role, entry: PlannedWindow | PlannedParameterServer) -> None:
        """Start a pod's process, in the environment that the operator would give it."""
        ledger = progress_status(self.planner.progress_of(KEY), to_job(resource(self.trial)), 0.0, estimated=False)
        job, saved = resource(self.trial, ledger), str(self.directory / "checkpoint")
        pod = pod_of(job.metadata.name, entry.index, entry.attempt, role=role, uid=f"u{entry.attempt}")
        self.pods[pod.key] = pod
        folder = self.directory / f"{role}-{entry.attempt}"
        folder.mkdir()
        (folder / "token").write_text(f"{pod.key}/{pod.metadata.uid}")
        if isinstance(entry, PlannedWindow):
            variables = environment.worker_environment(job, entry, saved)
            command = ["numpy_ps.worker", str(self.directory / "data"), f"--parts={self.trial.parts}"]
        else:
            variables = environment.server_environment(job, entry, saved)
            command = ["numpy_ps.server", *self._options()]
        does = {
            "reports": may_report_progress(job, role, entry.index),
            "requests_chunks": may_request_chunks(job, role),
        }
        variables |= environment.report_environment(self.api, **does) | {"TRANCHE_REPORT_SECONDS": "1.2"}
        variables |= {
            "TF_CONFIG": json.dumps({"cluster": {"ps": [f"127.0.0.1:{self.port}"]}}),
            "TRANCHE_TOKEN": str(folder / "token"),
            "TRANCHE_TERMINATION_LOG": str(folder / "termination-log"),
            "OPENBLAS_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join([str(ROOT / "worker"), str(ROOT / "worker" / "examples")]),
        }
        with (folder / "log").open("wb") as log:
            popen = subprocess.Popen([sys.executable, "-m", *command], env={**os.environ, **variables}, stderr=log)
        self.processes.append(_Process(role, entry, popen, folder))

    def _options(self) -> list[str]:
        options = {
            "diary": self.diary,
            "seed": self.trial.seed,
            "checkpoint-batches": self.trial.checkpoint_batches,
            "halving": self.trial.batches / 6,
            "patience": 5,
        }
        return [f"--{name}={value}" for name, value in options.items()]

    def _of(self, role: Role) -> list[_Process]:
        return [process for process in self.processes if process.role == role]

    def _stop(self, process: _Process, number: int) -> None:
        process.stopped = number
        process.popen.send_signal(number)

    def _disturb(self) -> None:
        """Stop a worker that has trained, or the server, when it is due and the last stopped process has ended."""
        lines = self._lines()
        if not self.due or len(lines) < self.due[0][0] or any(process.stopped for process in self.processes):
            return
        _, role, number = self.due[0]
        trained = self._trained()
        victims = [one for one in self._of(role) if role == "ps" or one.entry.attempt in trained]
        if victims:
            self.due.pop(0)
            self.stopped.append((role, number))
            self._stop(self.draw.choice(victims), number)

    def _trained(self) -> set[int]:
        """Return the attempts of workers whose gradients the server has applied."""
        return {int(words[3]) for words in self._lines() if words[0] == "apply"}

    def _ended(self, process: _Process) -> None:
        """Send the planner the result that the API server would show of the pod."""
        self.processes.remove(process)
        attempt, code = process.entry.attempt, process.popen.returncode
        if not process.stopped and code:
            said = (process.folder / "log").read_text()[-2000:]
            raise AssertionError(f"{process.role} {attempt} ended by itself with {code}: {said}")
        if code == -signal.SIGTERM and attempt in self._trained():
            raise AssertionError(f"{process.role} {attempt} has trained and ended without saving")
        if process.role == "ps":
            self._tell(ParameterServerEnded(KEY, 0, attempt))
            return
        if code == 0 and (process.role, process.stopped) in self.stopped:  # it was complete already: stop another one
            self.stopped.remove((process.role, process.stopped))
            self.due.insert(0, (0.0, process.role, process.stopped))
        self.endings[code] += 1
        message = process.folder / "termination-log"
        told = {int(c): float(b) for c, b in json.loads(message.read_text()).items()} if message.exists() else None
        outcome: Outcome = "Succeeded" if code == 0 else "Preempted" if process.stopped == signal.SIGTERM else "Lost"
        self._tell(WorkerEnded(KEY, attempt, outcome, self.now(), told, code))

    # ---- observations

    def _sample(self) -> None:
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{self.port}/state", timeout=2) as answer:
            count = sum(json.loads(answer.headers[COUNTS]).values())
            self.curve.append((count, Network().loss(np.frombuffer(answer.read()), self.x, self.y)))

    def _lines(self) -> list[list[str]]:
        return [line.split() for line in self.diary.read_text().splitlines()]

    def _result(self) -> Result:
        own = {"TRANCHE_JOB_UID": resource(self.trial).metadata.uid}
        state = states.load(self.directory / "checkpoint", own)
        assert state is not None
        applied, repeated, unsaved = lineage(self._lines())
        loss = Network().loss(state.parameters, self.x, self.y)
        self.curve.append((state.total, loss))
        return Result(
            loss=loss,
            curve=self.curve,
            applied=applied,
            repeated=repeated,
            unsaved=unsaved,
            progress=self.planner.progress_of(KEY),
            reported=self.reported,
            stopped=self.stopped,
            endings=self.endings,
            seconds=self.now(),
        )


def lineage(lines: Iterable[list[str]]) -> tuple[Counter[tuple[int, int]], int, list[int]]:
    """Read a server's diary: batches in the final model, batches applied again, batches that each restore discarded."""
    kept: list[tuple[int, int]] = []
    pending: list[tuple[int, int]] = []
    lost: Counter[tuple[int, int]] = Counter()
    unsaved: list[int] = []
    repeated = 0
    for what, *words in lines:
        if what == "apply":
            batch = (int(words[0]), int(words[1]))
            if lost[batch]:
                repeated += 1
                lost[batch] -= 1
            pending.append(batch)
        elif what == "save":
            kept, pending = kept + pending, []
            assert len(kept) == int(words[0])
        elif what == "restore":
            if int(words[0]) == len(kept) + len(pending):  # killed between a checkpoint and the line about it
                kept, pending = kept + pending, []
            assert len(kept) == int(words[0])
            if kept or pending:
                unsaved.append(len(pending))
            lost.update(pending)
            pending = []
    return Counter(kept + pending), repeated, unsaved


def _entry(window: Window) -> PlannedWindow:
    return PlannedWindow(index=window.index, attempt=window.attempt, site=window.site, chunks=list(window.chunks))
