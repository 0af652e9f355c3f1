"""CPU time of `tranche simulate` over that of a plain event loop, as whole processes in turn, and of short commands.

Run with ``python benchmarks/simulator_speed.py`` (about a minute, and once some minutes for ``make native``). The
simulation is that of elasticflow_cluster04 on 512 GPUs under SRSF; `plain_event_loop.py` has the same average JCT.
*Native* is the same command with the package of ``make native``, whose output must be the same. Each figure is the
median of the runs. The program exits with 1 if a bound of ranges.toml is missed.
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
NATIVE = Path(__file__).resolve().parents[1] / "tools/native_package.py"


def cpu_seconds(*command: str, package: str = "") -> float:
    """Run a command to its end, with the package in a folder, and return its CPU time, that of the system included."""
    process = subprocess.Popen(command, env=environment(package), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}: exit status {process.returncode}")
    return used.ru_utime + used.ru_stime


def environment(package: str) -> dict[str, str]:
    """Return an environment in which Python imports the package from a folder; "" is the checkout."""
    return {**os.environ, "PYTHONPATH": package}


def simulate(log: str, gpus: str) -> tuple[str, ...]:
    """Return the command that simulates a log under SRSF."""
    return (sys.executable, "-m", "tranche", "simulate", str(log_path(log)), "--gpus", gpus, "--policy", "srsf")


def native_folder() -> str:
    """Build the package of native code if it is absent or outdated; return its folder.

    Raises:
        subprocess.CalledProcessError: It cannot be built.
        SystemExit: Its command prints something else.
    """
    folder = subprocess.check_output([sys.executable, str(NATIVE)], text=True).strip()
    printed = {
        subprocess.check_output([*simulate(LOG, GPUS), "--format", "csv", "--quiet"], env=environment(package))
        for package in ("", folder)
    }
    if len(printed) > 1:
        raise SystemExit(f"the results with the package in {folder} differ")
    return folder


def main() -> int:
    """Measure and print; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3, help="runs of each command")
    runs = range(parser.parse_args().runs)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its bytecode
    folder = native_folder()
    for command in (simulate(SHORT_LOG, SHORT_GPUS), (sys.executable, "-m", "tranche", "--help")):
        cpu_seconds(*command)  # writes the bytecode
    whole = simulate(LOG, GPUS)
    trials = [(cpu_seconds(*whole), cpu_seconds(*whole, package=folder), loop_seconds()) for _ in runs]
    short = median(cpu_seconds(*simulate(SHORT_LOG, SHORT_GPUS)) for _ in runs)
    page = median(cpu_seconds(sys.executable, "-m", "tranche", "--help") for _ in runs)
    ours, native, loop = (median(column) for column in zip(*trials, strict=True))
    print(f"simulate {LOG} @{GPUS}, srsf: {ours:.2f} s; native: {native:.2f} s; plain event loop: {loop:.2f} s")
    ratios = [(ours / loop, native / loop) for ours, native, loop in trials]
    print(f"ratios of {len(ratios)} runs: {', '.join(f'{ours:.2f} (native {native:.2f})' for ours, native in ratios)}")
    figures = {
        "CPU time of simulate over a plain event loop": median(ours for ours, _ in ratios),
        "CPU time of native simulate over a plain event loop": median(native for _, native in ratios),
        "CPU s, simulate 60 jobs": short,
        "CPU s, tranche --help": page,
    }
    return int(not all_kept(figures))


def loop_seconds() -> float:
    """Return the CPU time of one run of the plain event loop."""
    return cpu_seconds(sys.executable, str(LOOP), str(log_path(LOG)), GPUS)


if __name__ == "__main__":
    sys.exit(main())
