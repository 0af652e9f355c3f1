"""The gangs of worker/examples under the production planner: real processes on one machine, some of them stopped.

The planner opens the windows of a gang, closes them for a more urgent job and opens them again; the members'
environment is made by the operator's own functions, with ports of this machine in place of
the pods' host names; member 0 reports to the real report API, whose TokenReview alone is a stand-in. Kubernetes' part,
starting and ending processes, is simulated here.
"""

import asyncio
import json
import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from numpy_ps import chunks
from support.builders import node
from support.builders import planner as planner_of
from support.extender_objects import worker as pod_of
from support.frameworks import python_of
from support.report_server import served
from support.worker_trial import ROOT
from tranche.kube.api.core_types import Pod
from tranche.kube.api.resources import PlannedWindow, TrainingJob
from tranche.kube.convert.pod_identity import may_report_progress
from tranche.kube.convert.trainingjob import progress_status, to_job
from tranche.live.chunk_requests import ChunkRequestQueue
from tranche.live.planner_inbox import ReportInbox
from tranche.model import Window
from tranche.planner import (
    CloseWindow,
    Event,
    Instruction,
    JobSubmitted,
    OpenWindow,
    Outcome,
    Tick,
    WorkerEnded,
    WorkerStarted,
)
from tranche_operator.manifests import environment
from tranche_testcluster import free_port

KEY, URGENT = "ns/digits", "ns/urgent"
GRACE_SECONDS = 30
POLL_SECONDS, LONGEST_SECONDS = 0.02, 1800.0


@dataclass(frozen=True, slots=True)
class Example:
    """Program of worker/examples, as a gang."""

    framework: str
    members: int
    batches: int
    checkpoint_batches: int

    def command(self, data: Path, index: int, seed: int) -> list[str]:
        """Return the command of a member."""
        python = python_of(self.framework)
        options = [str(data), f"--batches={self.batches}", f"--checkpoint-batches={self.checkpoint_batches}"]
        options.append(f"--seed={seed}")
        if self.framework == "torch":
            return [str(python.with_name("torchrun")), "-m", "torch_gang.train", *options]
        if index == 0:
            return [str(python), "-m", "tensorflow_ps.chief", *options]
        return [str(python), "-m", "tensorflow_ps.server"]

    def variables(self, job: TrainingJob, given: dict[str, str], index: int, ports: list[int]) -> dict[str, str]:
        """Return the operator's variables, with addresses of this machine."""
        if self.framework == "torch":
            leader = environment.address(job, "worker", 0)
            local = {name: value.replace(leader, "127.0.0.1") for name, value in given.items()}
            return local | {"MASTER_PORT": str(ports[0]), "PET_MASTER_PORT": str(ports[0]), "OMP_NUM_THREADS": "1"}
        quiet = {"TF_CPP_MIN_LOG_LEVEL": "2", "TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "2"}
        return given | quiet | {"TF_CONFIG": tensorflow_config(index, ports)}


def tensorflow_config(index: int, ports: list[int]) -> str:
    """Return TF_CONFIG of a member: the chief, workers, and one parameter server, in this order."""
    addresses = [f"127.0.0.1:{port}" for port in ports]
    cluster = {"chief": addresses[:1], "worker": addresses[1:-1], "ps": addresses[-1:]}
    tasks = [{"type": role, "index": number} for role, held in cluster.items() for number in range(len(held))]
    return json.dumps({"cluster": cluster, "task": tasks[index]})


TORCH = Example("torch", members=2, batches=6000, checkpoint_batches=500)
TENSORFLOW = Example("tensorflow", members=4, batches=9360, checkpoint_batches=780)


@dataclass(frozen=True, slots=True)
class Trial:
    """Settings of one run."""

    example: Example
    seed: int
    preemptions: int = 0
    """Number of preemptions by a more urgent job."""
    kills: int = 0
    """Number of members to kill by SIGKILL."""


@dataclass(slots=True)
class Result:
    """Result of a run."""

    loss: float
    """Loss of the last checkpoint's model on all data."""
    counts: list[int]
    """Number of times that each batch is in that model."""
    moments: list[tuple[str, int]]
    """Disturbances, each with the reported number of batches at its time."""
    resumed: list[float]
    """Batches that each start of the gang but the first found, by its first report."""
    seen: list[float]
    """Batches applied by the last report before each of these starts."""
    stopping: list[float]
    """Seconds from SIGTERM to the end of a member."""
    reported: int
    """Number of reports that were counted."""
    refused: int
    """Number of reports that the API did not accept, except those too soon after another."""
    preemptions: int
    """Number of preemptions in the planner's ledger."""
    seconds: float


@dataclass(slots=True, eq=False)
class _Member:
    entry: PlannedWindow
    popen: "subprocess.Popen[bytes]"
    folder: Path
    stopped: int = 0
    """Signal that it was sent."""
    stopped_at: float = 0.0


def run(trial: Trial, directory: Path) -> Result:
    """Train to the end.

    Raises:
        FileNotFoundError: The framework is not installed.
        TimeoutError: The job is not done in time.
    """
    python_of(trial.example.framework)
    return asyncio.run(_Run(trial, directory).play())


def resource(key: str, members: int, tier: str = "tranche-normal", progress: Any = None) -> TrainingJob:
    """Return a gang as its user would write it."""
    namespace, name = key.split("/")
    requests = {"nvidia.com/gpu": "1", "cpu": "1"}
    template = {
        "spec": {
            "terminationGracePeriodSeconds": GRACE_SECONDS,
            "containers": [{"name": "main", "resources": {"requests": requests}}],
        }
    }
    spec = {"workers": {"maxReplicas": members, "template": template}, "priorityClassName": tier}
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}"}
    return TrainingJob.model_validate({"metadata": metadata, "spec": spec, "status": {"progress": progress}})


@dataclass
class _Run:
    trial: Trial
    directory: Path
    members: list[_Member] = field(default_factory=list)
    ports: list[int] = field(default_factory=list)
    pods: dict[str, Pod] = field(default_factory=dict)
    resumed: list[float] = field(default_factory=list)
    seen: list[float] = field(default_factory=list)
    stopping: list[float] = field(default_factory=list)
    moments: list[tuple[str, int]] = field(default_factory=list)
    urgent: Window | None = None
    """Window of the urgent job, until the gang has made way."""
    first: bool = True
    """Whether this start of the gang has not reported yet."""
    broken: bool = False
    """Whether a member was killed, so that others may fail."""
    applied: float = 0.0
    reported: int = 0

    def __post_init__(self) -> None:
        self.began = time.monotonic()
        nodes = [node(f"n{i}", "cluster") for i in range(self.trial.example.members)]
        self.planner = planner_of("chunk", nodes, failure_backoff_seconds=0.5)
        self.inbox = ReportInbox(self.planner, self.now)
        self.inbox.restored = True
        self.draw = random.Random(self.trial.seed)
        chunks.stage(self.directory / "data", 1)
        (self.directory / "checkpoint").mkdir()
        kinds = ["preempt"] * self.trial.preemptions + ["kill"] * self.trial.kills
        parts = [(number + self.draw.uniform(0.3, 0.8)) / (len(kinds) + 0.2) for number in range(len(kinds))]
        self.due = list(zip(parts, kinds, strict=True))

    def now(self) -> float:
        return time.monotonic() - self.began

    async def play(self) -> Result:
        jobs = {key: resource(key, 1) for key in (KEY, URGENT)}
        chunk_requests = ChunkRequestQueue(self.planner, jobs, self.now, lambda: None)
        async with served(self.pods, jobs, self.inbox, chunk_requests, self.now) as self.api:
            try:
                await self._drive()
            finally:
                for member in self.members:
                    _kill(member.popen)
        return self._result()

    async def _drive(self) -> None:
        self._tell(JobSubmitted(to_job(resource(KEY, self.trial.example.members))))
        state = self.planner.cluster.jobs[KEY]
        while not state.finished:
            if self.now() > LONGEST_SECONDS or state.failed:
                raise TimeoutError(f"{self.trial}: {self.planner.progress_of(KEY)}\n{self._logs()}")
            for member in [member for member in self.members if member.popen.poll() is not None]:
                self._ended(member)
            for member in [member for member in self.members if member.popen.poll() is None and self._overdue(member)]:
                _kill(member.popen)
            self._count_reports()
            self._disturb()
            self._serve_urgent()
            self._tell(Tick())
            await asyncio.sleep(POLL_SECONDS)

    def _tell(self, *events: Event) -> None:
        for instruction in self.planner.handle_all(events, self.now()):
            self._execute(instruction)

    def _execute(self, instruction: Instruction) -> None:
        match instruction:
            case OpenWindow(job=key, window=window) if key == URGENT:
                self.urgent = window
            case OpenWindow(window=window):
                self._start(window)
                self._tell(WorkerStarted(KEY, window.attempt, self.now()))
            case CloseWindow(window=window):
                for member in self.members:
                    if member.entry.attempt == window.attempt and not member.stopped:
                        self._stop(member, signal.SIGTERM)
            case _:
                pass

    # ---- processes

    def _start(self, window: Window) -> None:
        """Start a member's process, in the environment that the operator would give it."""
        example = self.trial.example
        if not self.members:
            self.ports = [free_port() for _ in range(example.members)]
            self.first, self.broken = True, False
        ledger = progress_status(
            self.planner.progress_of(KEY), to_job(resource(KEY, example.members)), 0.0, estimated=False
        )
        job = resource(KEY, example.members, progress=ledger)
        entry = PlannedWindow(index=window.index, attempt=window.attempt, site=window.site, chunks=list(window.chunks))
        pod = pod_of(job.metadata.name, entry.index, entry.attempt, uid=f"u{entry.attempt}")
        self.pods[pod.key] = pod
        folder = self.directory / f"member-{entry.attempt}"
        folder.mkdir()
        (folder / "token").write_text(f"{pod.key}/{pod.metadata.uid}")
        given = environment.worker_environment(job, entry, str(self.directory / "checkpoint"))
        variables = example.variables(job, given, entry.index, self.ports)
        if may_report_progress(job, "worker", entry.index):
            variables |= environment.report_environment(self.api, reports=True, requests_chunks=False) | {
                "TRANCHE_REPORT_SECONDS": "1.6"
            }
        variables |= {
            "TRANCHE_TOKEN": str(folder / "token"),
            "TRANCHE_TERMINATION_LOG": str(folder / "termination-log"),
            "PYTHONPATH": os.pathsep.join([str(ROOT / "worker"), str(ROOT / "worker" / "examples")]),
        }
        command = example.command(self.directory / "data", entry.index, self.trial.seed)
        with (folder / "log").open("wb") as log:
            popen = subprocess.Popen(command, env={**os.environ, **variables}, stdout=log, stderr=log)
        self.members.append(_Member(entry, popen, folder))

    def _stop(self, member: _Member, number: signal.Signals) -> None:
        member.stopped, member.stopped_at = number, self.now()
        if number == signal.SIGKILL:
            _kill(member.popen)
        else:
            member.popen.send_signal(number)

    def _overdue(self, member: _Member) -> bool:
        """Whether the grace period is over."""
        return member.stopped == signal.SIGTERM and self.now() - member.stopped_at > GRACE_SECONDS

    def _ended(self, member: _Member) -> None:
        """Send the planner the result that the API server would show of the pod."""
        self.members.remove(member)
        attempt, code = member.entry.attempt, member.popen.returncode
        if code and not member.stopped and not self.broken:
            raise AssertionError(f"member {member.entry.index} ended by itself with {code}:\n{self._logs()}")
        if member.stopped == signal.SIGTERM:
            self.stopping.append(self.now() - member.stopped_at)
        message = member.folder / "termination-log"
        told = {int(c): float(b) for c, b in json.loads(message.read_text()).items()} if message.exists() else None
        ends: dict[int, Outcome] = {signal.SIGTERM: "Preempted", signal.SIGKILL: "Lost"}
        outcome: Outcome = "Succeeded" if code == 0 else ends.get(member.stopped, "Failed")
        self._tell(WorkerEnded(KEY, attempt, outcome, self.now(), told, code))

    # ---- disturbances

    def _count_reports(self) -> None:
        events = self.inbox.drain()
        for event in events:
            self.reported += 1
            applied = event.report.applied[0] * self.trial.example.batches
            if self.first and (self.reported > 1):
                self.resumed.append(applied)
                self.seen.append(self.applied)
            self.first, self.applied = False, applied
        if events:
            self._tell(*events)

    def _disturb(self) -> None:
        """Carry out a due disturbance, if the gang trains."""
        whole = len(self.members) == self.trial.example.members and not any(one.stopped for one in self.members)
        if self.first or not whole or not self.due or self.applied < self.due[0][0] * self.trial.example.batches:
            return
        _, kind = self.due.pop(0)
        self.moments.append((kind, round(self.applied)))
        if kind == "kill":
            self.broken = True
            self._stop(self.draw.choice(self.members), signal.SIGKILL)
        else:
            self._tell(JobSubmitted(to_job(resource(URGENT, 1, "tranche-high"))))

    def _serve_urgent(self) -> None:
        """Run the urgent job as soon as its place is free, and complete it at once."""
        if self.urgent is not None and not self.members:
            attempt, self.urgent = self.urgent.attempt, None
            self._tell(WorkerStarted(URGENT, attempt, self.now()))
            self._tell(WorkerEnded(URGENT, attempt, "Succeeded", self.now()))

    # ---- observations

    def _logs(self) -> str:
        logs = sorted(self.directory.glob("member-*/log"))
        return "\n".join(f"{path.parent.name}: {path.read_text(errors='replace')[-2000:]}" for path in logs)

    def _result(self) -> Result:
        module = {"torch": "torch_gang", "tensorflow": "tensorflow_ps"}[self.trial.example.framework]
        command = [str(python_of(self.trial.example.framework)), "-m", f"{module}.states"]
        variables = {
            "TRANCHE_CHECKPOINT_DIR": str(self.directory / "checkpoint"),
            "TRANCHE_JOB_UID": resource(KEY, self.trial.example.members).metadata.uid,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "worker"), str(ROOT / "worker" / "examples")]),
        }
        told = subprocess.run(
            [*command, str(self.directory / "data"), str(self.trial.example.batches)],
            env={**os.environ, **variables},
            check=True,
            capture_output=True,
        )
        found = json.loads(told.stdout)
        return Result(
            loss=found["loss"],
            counts=found["counts"],
            moments=self.moments,
            resumed=self.resumed,
            seen=self.seen,
            stopping=self.stopping,
            reported=self.reported,
            refused=len(re.findall(r"answers (?!429)\d+ to a report", self._logs())),
            preemptions=self.planner.progress_of(KEY).preemptions,
            seconds=self.now(),
        )


def _kill(popen: "subprocess.Popen[bytes]") -> None:
    """Send SIGKILL to a process and all its descendants, as when a container is killed."""
    if popen.poll() is None:
        for pid in [*_descendants(popen.pid), popen.pid]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        popen.wait()


def _descendants(pid: int) -> Iterable[int]:
    with suppress(OSError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            yield from _descendants(int(child))
            yield int(child)
