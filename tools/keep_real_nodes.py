"""Start the cluster of ``make e2e`` and keep it: three real nodes, with tranche installed by its chart."""

import signal
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from support.real_lab import installed_chart
from tranche_testcluster.binaries import binary_cache
from tranche_testcluster.node import unavailable


def main() -> int:
    """Start the nodes, print how to use them, and keep them until Ctrl-C."""
    if reason := unavailable():
        print(f"make containers: not possible here: {reason}", file=sys.stderr)
        return 1
    print("starting three nodes and installing the chart; this takes one to two minutes", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # the containers have another user
        with installed_chart(Path(folder)) as lab, suppress(KeyboardInterrupt):
            programs = f"{Path(sys.executable).parent}:{binary_cache.ensure('kubectl')['kubectl'].parent}"
            print("In a second terminal (everything stops when this command does):\n")
            print(f"  export KUBECONFIG={lab.cluster.kubeconfig}")
            print(f"  export PATH={programs}:$PATH", flush=True)
            while True:
                signal.pause()
    return 0


if __name__ == "__main__":
    sys.exit(main())
