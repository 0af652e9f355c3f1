"""Time until the other replica continues after the leading planner or operator is killed, stopped or asked to end.

``python benchmarks/failover.py`` takes about six minutes. Two replicas of each program run on a real control plane with
simulated nodes, and 20 jobs arrive in each minute. A planner has taken over when a plan of its term is written, an
operator when the first pod of a job that arrived since then exists. Exits with 1 if a bound of ranges.toml is broken.
"""

import argparse
import signal
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import product
from pathlib import Path

from ranges import all_kept
from tranche.demo.local_stack import SYSTEM_NAMESPACE, Stack, apply_manifests
from tranche_testcluster import Cluster, free_port

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from support.arrivals import Arrivals
from support.full_stack import System

SIGNALS = {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP, "asked to end": signal.SIGTERM}
REPLICAS = {"scheduler": "scheduler-2", "operator": "operator-2"}
"""Second replica of each program by the first one; both have the same Lease."""
LIMIT_SECONDS = 120.0
"""Time after which a round fails."""
SETTLED_SECONDS = 10.0
"""Time for which jobs arrive before a round, so that each program is at work."""


def continuation(system: System, program: str, arrivals: Arrivals) -> Callable[[], bool]:
    """Return the function that says whether a program continues under a later leader than now."""
    term, before = system.term(program), len(arrivals.names)

    def has_pod_of_arrival() -> bool:
        pods = system.cluster.request("GET", "/api/v1/namespaces/default/pods")[1]["items"]
        arrived = arrivals.names[before:]
        return any(pod["metadata"].get("labels", {}).get("tranche.dev/job") in arrived for pod in pods)

    return (lambda: system.has_plan_after(term)) if program == "scheduler" else has_pod_of_arrival


def restart(system: System, name: str) -> None:
    """Kill what is left of a replica and start it again."""
    with suppress(ProcessLookupError):
        system.stack.signal(name, signal.SIGKILL)
    system.stack.processes.pop(name).wait()
    if name.startswith("scheduler"):
        system.stack.start_scheduler(name, system.stack.port if name == "scheduler" else free_port())
    else:
        system.stack.start_operator(name, free_port())


def failover(system: System, arrivals: Arrivals, program: str, number: signal.Signals) -> float:
    """Send a signal to the leading replica of a program, and return the seconds until another one continues."""
    settled = time.monotonic() + SETTLED_SECONDS
    arrivals.until(lambda: time.monotonic() > settled and bool(system.leader(program)), LIMIT_SECONDS)
    name, continues = system.leader(program), continuation(system, program, arrivals)
    if number == signal.SIGTERM:  # as the kubelet: only the first process of the container
        system.stack.processes[name].send_signal(number)
    else:
        system.stack.signal(name, number)
    seconds = arrivals.until(continues, LIMIT_SECONDS)
    restart(system, name)
    return seconds


def seconds_text(values: Iterable[float]) -> str:
    """Return times in ascending order."""
    return ", ".join(f"{value:.1f}" for value in sorted(values))


def main() -> int:
    """Measure all rounds, print a table and compare the longest time with its bound."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each event")
    options = parser.parse_args()
    measured: dict[tuple[str, str], list[float]] = {}
    with Cluster() as cluster:
        apply_manifests(cluster)
        cluster.add_site("edge-a", nodes=2, gpus=2)
        with Stack(cluster, operator_options=(f"--lease-namespace={SYSTEM_NAMESPACE}",)) as stack:
            stack.start_scheduler(REPLICAS["scheduler"], free_port())
            stack.start_operator(REPLICAS["operator"], free_port())
            system = System(cluster, stack)
            arrivals = Arrivals(system)
            for _, program, event in product(range(options.rounds), REPLICAS, SIGNALS):
                seconds = failover(system, arrivals, program, SIGNALS[event])
                measured.setdefault((program, event), []).append(seconds)
                print(f"{program} {event}: {seconds:.1f} s", flush=True)
    print("\n| leading replica of | is | seconds until another one continues |\n| :-- | :-- | --: |")
    for (program, event), values in measured.items():
        print(f"| the {program} | {event} | {seconds_text(values)} |")
    print()
    return 0 if all_kept({"s, failover": max(max(values) for values in measured.values())}) else 1


if __name__ == "__main__":
    sys.exit(main())
