"""``python -m tranche_testcluster.node`` prints why this machine cannot have real nodes, or nothing if it can."""

import sys

from .requirement import unavailable

if __name__ == "__main__":
    sys.stdout.write(unavailable())
