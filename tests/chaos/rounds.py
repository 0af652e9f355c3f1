"""Round: a cluster with jobs and faults at times drawn from a seed. After the faults, all jobs must end as expected."""

import argparse
import json
import random
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from chaos import workloads
from chaos.checks.history import RESOURCES, check, check_ends, summarize
from chaos.checks.node_visit import check_visits
from chaos.faults import catalog
from chaos.labs import JOBS, PODS, Lab, Undo, lab
from chaos.outcomes import Outcome
from tranche.demo.local_stack import SYSTEM_NAMESPACE
from tranche.kube.client.leader_election import leases_path
from tranche.policies import get_policy
from tranche_testcluster import ClusterError, Faults

SETTLE_SECONDS = 600.0
"""Time for the jobs to end after the last fault: longer than the first exclusion of a node (300 s) with its trial,
because a job may select that node alone."""
RELEASE_SECONDS = 180.0
"""Time for the operator to release the pods of an ended job: more than its `ledger_patience_seconds` and a resync."""
GONE_SECONDS = 180.0
LEASES = leases_path(SYSTEM_NAMESPACE)
TRACEBACK = re.compile(r"^(?!Exception ignored in).*\n(?=Traceback \(most recent call last\))", re.MULTILINE)
OURS = "labelSelector=tranche.dev/job"


@dataclass(frozen=True, slots=True)
class Size:
    """Size of a round."""

    jobs: int = 8
    faults: int = 7
    seconds: float = 18.0
    """Time within which faults begin; jobs arrive in its first two thirds."""
    only: tuple[str, ...] = ()
    """Names of the faults to draw from; empty: all but those of `catalog.OPEN`."""
    policy: str = "chunk"


def run(seed: int, folder: Path, size: Size | None = None, tell: Callable[[str], None] = lambda line: None) -> Outcome:
    """Run a round.

    Args:
        seed: Seed of all draws.
        folder: Folder for logs and, if there are problems, the history of all objects; otherwise it is removed.
        size: Size of the round.
        tell: Called with each line of the log.
    """
    size, chance, began = size or Size(), random.Random(seed), time.monotonic()
    tolerances = workloads.tolerances(chance)
    staged = bool(tolerances) and get_policy(size.policy).traits.needs_local_data
    arrivals = workloads.draw(chance, size.jobs, size.seconds * 2 / 3, staged=staged)
    plan = catalog.draw(chance, size.faults, size.seconds, size.only)
    lines: list[str] = []

    def note(line: str) -> None:
        lines.append(f"{time.monotonic() - began:6.1f} s  {line}")
        tell(lines[-1])

    with lab(folder / "cluster", seed, tolerances, size.policy) as made:
        done = _run_faults(made, arrivals, plan, note)
        faults_ended = time.monotonic()
        problems = list(_await_ends(made, note))
        settled = time.monotonic() - faults_ended
        history = made.cluster.history(*RESOURCES)
        work = summarize(history)
        note(work)
        problems += [*check(history, made.bounds), *check_visits(history, made.visits)]
        problems += _process_errors(made)
        note("; ".join(problems) or "ok")
        (folder / "round.txt").write_text("\n".join(lines) + "\n")
        if problems:
            changes = [{**{name: getattr(one, name) for name in one.__slots__}, "before": None} for one in history]
            (folder / "history.jsonl").write_text("\n".join(map(json.dumps, changes)) + "\n")
    outcome = Outcome(seed, done, time.monotonic() - began, work, settled, problems)
    if not problems:
        shutil.rmtree(folder)
    return outcome


def command(seed: int, folder: Path, size: Size, verbose: bool) -> list[str]:
    """Return the command of a process that runs a round and writes its `Outcome` to standard output."""
    numbers = ["--seed", str(seed), "--jobs", str(size.jobs), "--faults", str(size.faults)]
    only = [word for name in size.only for word in ("--only", name)]
    told = ["--verbose"] if verbose else []
    return [
        *(sys.executable, "-m", "chaos.rounds", *numbers, *only),
        *("--policy", size.policy, "--folder", str(folder), *told),
    ]


def main() -> None:
    """Run the round that the arguments of `command` describe."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("seed", "jobs", "faults"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--policy", required=True)
    parser.add_argument("--only", action="append", choices=list(catalog.FAULTS), default=[])
    parser.add_argument("--verbose", action="store_true", help="write the log to standard error")
    options = parser.parse_args()

    def tell(line: str) -> None:
        if options.verbose:
            sys.stderr.write(f"seed {options.seed} {line}\n")

    size = Size(options.jobs, options.faults, only=tuple(options.only), policy=options.policy)
    outcome = run(options.seed, options.folder, size, tell)
    sys.stdout.buffer.write(msgspec.json.encode(outcome))


def _run_faults(
    lab: Lab, arrivals: list[workloads.Arrival], plan: list[catalog.Fault], note: Callable[[str], None]
) -> list[str]:
    """Submit the jobs, and begin and undo the faults, each at its time or as soon as possible after it."""
    began, done = time.monotonic(), []
    agenda: list[tuple[float, int, Callable[[], object]]] = []

    def submit(arrival: workloads.Arrival) -> None:
        status, answer = lab.ask("POST", JOBS, arrival.body)
        assert status in (201, 409), answer
        lab.expected[arrival.name] = arrival.expected
        note(f"submit {arrival.name}")

    def undo(what: str, back: Undo) -> None:
        note(f"end of: {what}")
        back()

    def begin(fault: catalog.Fault) -> None:
        note(f"begin {fault.name}")
        try:
            what, back = catalog.FAULTS[fault.name](lab, random.Random(fault.seed))
        except ClusterError as error:  # another fault has broken the target of this one
            what, back = f"{fault.name}: not possible ({error})".splitlines()[0], None
        note(what)
        done.append(what)
        if back is not None:
            later = time.monotonic() - began + fault.seconds
            agenda.append((later, len(done) + 1000, lambda: undo(what, back)))

    for number, arrival in enumerate(arrivals):
        agenda.append((arrival.at, number, lambda arrival=arrival: submit(arrival)))  # type: ignore[misc]
    for number, fault in enumerate(plan, len(arrivals)):
        agenda.append((fault.at, number, lambda fault=fault: begin(fault)))  # type: ignore[misc]
    while agenda:
        agenda.sort(key=lambda entry: entry[:2])
        at, _, act = agenda.pop(0)
        lab.wait(max(0.0, began + at - time.monotonic()))
        act()
    for proxy in lab.proxies.values():
        proxy.faults = Faults()
    return done


def _await_ends(lab: Lab, note: Callable[[str], None]) -> Iterator[str]:
    """Wait until all jobs end and their pods are released, delete the jobs, and yield what remains or is missing."""
    lab.until(lambda: not list(check_ends(lab.jobs(), lab.expected)), SETTLE_SECONDS)
    wrong = list(check_ends(lab.jobs(), lab.expected))
    note("all jobs have ended" if not wrong else f"after {SETTLE_SECONDS:g} s: {wrong}")
    yield from wrong
    if not wrong and not lab.until(lambda: not _held(lab), RELEASE_SECONDS):
        yield f"the ledger's finalizer stays on pods of jobs that have ended: {_held(lab)}"
    for name in lab.jobs():
        lab.ask("DELETE", f"{JOBS}/{name}")
    if not lab.until(lambda: not _left(lab, repeat=True), GONE_SECONDS):
        yield f"left behind by deleted jobs: {_left(lab)}"
    leases = [one["metadata"]["name"] for one in lab.ask("GET", LEASES)[1]["items"]]
    if leases != ["tranche-scheduler"]:
        yield f"leases: {leases}"


def _held(lab: Lab) -> list[str]:
    pods = lab.ask("GET", f"{PODS}?{OURS}")[1]["items"]
    return [_name(one) for one in pods if one["status"]["phase"] in ("Succeeded", "Failed") and _finalizers(one)]


def _left(lab: Lab, *, repeat: bool = False) -> list[str]:
    """Return what remains of deleted jobs.

    With `repeat`, the deletion of pods that nothing keeps is repeated, as a kubelet does: the API server may fail
    between its two writes of a deletion, and simulated kubelets delete once.
    """
    left: list[str] = []
    for path in (PODS, "/api/v1/namespaces/default/services"):
        for one in lab.ask("GET", f"{path}?{OURS}")[1]["items"]:
            left.append(f"{path.rpartition('/')[2]} {_name(one)} {_finalizers(one)}")
            if repeat and one["metadata"].get("deletionGracePeriodSeconds") == 0 and not _finalizers(one):
                lab.ask("DELETE", f"{path}/{_name(one)}", {"gracePeriodSeconds": 0})
    return left


def _process_errors(lab: Lab) -> Iterator[str]:
    """Yield unexpected ends of the processes, and the number of tracebacks but those of objects that Python drops."""
    rival = lab.processes["standby"].starts > 0
    for process in lab.processes.values():
        yield from process.unexpected(rival=rival)
        said = process.log.read_text(errors="replace") if process.log.exists() else ""
        if count := len(TRACEBACK.findall(said)):
            yield f"{count} tracebacks in {process.log.name}"


def _name(thing: dict[str, Any]) -> str:
    return str(thing["metadata"]["name"])


def _finalizers(thing: dict[str, Any]) -> list[str]:
    return list(thing["metadata"].get("finalizers", ()))


if __name__ == "__main__":
    main()
