"""tranche from Python: submit jobs, wait for them, and ask when they complete and why they wait.

`Client` is the whole of it; docs/how-to/notebooks.md shows it, and a test runs what stands there.
"""

from tranche.client.chunk_plan import ChunkPlan
from tranche.client.client import Client
from tranche.client.errors import ClientError, ClusterError, JobFailed, ManifestError, NoSuchJob, WaitedTooLong
from tranche.client.job_history import Attempt, History, JobEvent
from tranche.client.what_if import WhatIf

__all__ = [
    "Attempt",
    "ChunkPlan",
    "Client",
    "ClientError",
    "ClusterError",
    "History",
    "JobEvent",
    "JobFailed",
    "ManifestError",
    "NoSuchJob",
    "WaitedTooLong",
    "WhatIf",
]
