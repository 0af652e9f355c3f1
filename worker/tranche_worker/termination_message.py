"""What this worker leaves behind: its durable progress, in the container's termination message."""

import json
from collections.abc import Mapping
from pathlib import Path

TERMINATION_LOG = Path("/dev/termination-log")
"""Kubernetes' default terminationMessagePath; 4 KiB at most."""


def report(batches: Mapping[int, float], path: Path = TERMINATION_LOG) -> None:
    """Say how many batches of each chunk are durable (in a checkpoint or at the parameter server).

    Call it after saving, and again whenever more is durable: the last one counts.

    Args:
        batches: By chunk, those of earlier attempts included; a gang's member has one, and tells which part of it.
        path: The container's termination message file.
    """
    path.write_text(json.dumps({str(chunk): count for chunk, count in batches.items()}, separators=(",", ":")))
