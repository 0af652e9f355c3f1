"""Python client of tranche: submit jobs, wait for them, and read plans and explanations.

`Client` is the entry point. docs/how-to/notebooks.md documents it, and a test runs its examples.
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
