"""CPU time of `tranche simulate` over that of a plain event loop, as whole processes in turn, and of short commands.

Run with ``python benchmarks/simulator_speed.py`` (about a minute). The simulation is that of elasticflow_cluster04 on
512 GPUs under SRSF; `plain_event_loop.py` has the same average JCT. Each figure is the median of the runs. The program
exits with 1 if a bound of ranges.toml is missed.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

from job_logs import log_path
from ranges import all_kept

LOG, GPUS = "elasticflow_cluster04", "512"
SHORT_LOG, SHORT_GPUS = "tiresias_60", "64"
LOOP = Path(__file__).with_name("plain_event_loop.py")


def cpu_seconds(*command: str) -> float:
    """Run a command to its end and return its CPU time, that of the system included."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}: exit status {process.returncode}")
    return used.ru_utime + used.ru_stime


def simulate(log: str, gpus: str) -> tuple[str, ...]:
    """Return the command that simulates a log under SRSF."""
    return (sys.executable, "-m", "tranche", "simulate", str(log_path(log)), "--gpus", gpus, "--policy", "srsf")


def main() -> int:
    """Measure and print; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3, help="runs of each command")
    runs = range(parser.parse_args().runs)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its bytecode
    for command in (simulate(SHORT_LOG, SHORT_GPUS), (sys.executable, "-m", "tranche", "--help")):
        cpu_seconds(*command)  # writes the bytecode
    pairs = [(cpu_seconds(*simulate(LOG, GPUS)), loop_seconds()) for _ in runs]
    ratio = median(ours / loop for ours, loop in pairs)
    short = median(cpu_seconds(*simulate(SHORT_LOG, SHORT_GPUS)) for _ in runs)
    page = median(cpu_seconds(sys.executable, "-m", "tranche", "--help") for _ in runs)
    ours, loop = (median(column) for column in zip(*pairs, strict=True))
    print(f"simulate {LOG} @{GPUS}, srsf: {ours:.2f} s; plain event loop: {loop:.2f} s")
    print(f"ratios of {len(pairs)} pairs: {', '.join(f'{own / plain:.2f}' for own, plain in pairs)}")
    figures = {
        "CPU time of simulate over a plain event loop": ratio,
        "CPU s, simulate 60 jobs": short,
        "CPU s, tranche --help": page,
    }
    return int(not all_kept(figures))


def loop_seconds() -> float:
    """Return the CPU time of one run of the plain event loop."""
    return cpu_seconds(sys.executable, str(LOOP), str(log_path(LOG)), GPUS)


if __name__ == "__main__":
    sys.exit(main())
