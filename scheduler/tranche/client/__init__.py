"""Python client of tranche: submit jobs, wait for them, and read plans and explanations.

`Client` is the entry point. docs/notebooks.md documents it, and a test runs its examples.
"""

from tranche.client.attempts import Attempt, History, JobEvent
from tranche.client.chunk_plans import ChunkPlan
from tranche.client.clients import Client
from tranche.client.errors import ClientError, ClusterError, JobFailed, ManifestError, NoSuchJob, WaitedTooLong
from tranche.client.whatifs import WhatIf
from tranche.web.reads import JobDetail, JobSummary

__all__ = [
    "Attempt",
    "ChunkPlan",
    "Client",
    "ClientError",
    "ClusterError",
    "History",
    "JobDetail",
    "JobEvent",
    "JobFailed",
    "JobSummary",
    "ManifestError",
    "NoSuchJob",
    "WaitedTooLong",
    "WhatIf",
]
