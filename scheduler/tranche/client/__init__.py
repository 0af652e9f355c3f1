"""tranche from Python: submit jobs, wait for them, and ask when they complete and why they wait.

`Client` is the whole of it; docs/how-to/notebooks.md shows it, and a test runs what stands there.
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
