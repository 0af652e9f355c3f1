"""Durable progress in the container's termination message."""

import json
from collections.abc import Mapping
from pathlib import Path

TERMINATION_LOG = Path("/dev/termination-log")
"""Kubernetes' default terminationMessagePath; Kubernetes reads at most 4 KiB."""


def report(batches: Mapping[int, float], path: Path = TERMINATION_LOG) -> None:
    """Write the number of durable batches (in a checkpoint or at the parameter server) of each chunk.

    Call it after each save; the last call counts.

    Args:
        batches: Durable batches by chunk, including those of earlier attempts; for a member of a gang, the fraction of
            its one batch.
        path: The container's termination message file.
    """
    path.write_text(json.dumps({str(chunk): count for chunk, count in batches.items()}, separators=(",", ":")))
