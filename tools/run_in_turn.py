"""Run commands one after the other to the last, print which failed, and exit with 1 if one did.

Each argument is what follows ``python`` on the command line, such as ``"benchmarks/lwf_study.py --picture"``. A command
that misses its bound does not keep the rest from running.
"""

import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main(commands: Sequence[str]) -> int:
    """Run all commands and return the exit code."""
    lines, failed = [], 0
    for command in commands:
        print(f"\n$ python {command}", flush=True)
        began = time.monotonic()
        code = subprocess.run([sys.executable, *shlex.split(command)], cwd=ROOT, check=False).returncode  # noqa: S603
        failed += code != 0
        lines.append(f"{time.monotonic() - began:7.0f} s  {'passed' if not code else f'exit {code}':8}  {command}")
    print(f"\n{len(commands) - failed} of {len(commands)} commands passed", *lines, sep="\n")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
