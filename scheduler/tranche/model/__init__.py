"""Values that all packages share: frozen, without behavior that needs a clock or a network.

Units are in the names: ``_seconds``, ``_bytes``, ``_bits``; CPU is in millicores; times are seconds since the epoch
(live) or since the start of the trace (simulated).
"""

from tranche.model.attempt_record import AttemptRecord, PreemptedJob
from tranche.model.chunk_ranges import format_chunks, parse_chunks
from tranche.model.chunk_window import ChunkState, ChunkWindow, ExecutedWindow, PlannedWindow
from tranche.model.cluster import Link, Node, Resources, Site, Tier
from tranche.model.explanation_text import expected, free_gpus, since, until, without_moments
from tranche.model.job import OUTSIDE, UNKNOWN_DURATION_SECONDS, Admission, Job, PodShape, Preemption
from tranche.model.node_constraints import Constraints, Requirement, Taint, Toleration
from tranche.model.plan import (
    Checkpoint,
    Interval,
    JobPlan,
    JobProgress,
    PlannedServer,
    PlannedStaging,
    PodOutcome,
    PodPlaces,
    SiteProgress,
    SlotCells,
    SlotPlan,
    UnplacedPods,
    Window,
    WindowState,
    WorkerGrant,
)
from tranche.model.progress_report import ChunkGrant, ChunkRequest, Report, Timings
from tranche.model.resource_quota import Measure, Quota, QuotaLimit
from tranche.model.utility import Utility
from tranche.model.what_if import Delay, WhatIf

__all__ = [
    "OUTSIDE",
    "UNKNOWN_DURATION_SECONDS",
    "Admission",
    "AttemptRecord",
    "Checkpoint",
    "ChunkGrant",
    "ChunkRequest",
    "ChunkState",
    "ChunkWindow",
    "Constraints",
    "Delay",
    "ExecutedWindow",
    "Interval",
    "Job",
    "JobPlan",
    "JobProgress",
    "Link",
    "Measure",
    "Node",
    "PlannedServer",
    "PlannedStaging",
    "PlannedWindow",
    "PodOutcome",
    "PodPlaces",
    "PodShape",
    "PreemptedJob",
    "Preemption",
    "Quota",
    "QuotaLimit",
    "Report",
    "Requirement",
    "Resources",
    "Site",
    "SiteProgress",
    "SlotCells",
    "SlotPlan",
    "Taint",
    "Tier",
    "Timings",
    "Toleration",
    "UnplacedPods",
    "Utility",
    "WhatIf",
    "Window",
    "WindowState",
    "WorkerGrant",
    "expected",
    "format_chunks",
    "free_gpus",
    "parse_chunks",
    "since",
    "until",
    "without_moments",
]
