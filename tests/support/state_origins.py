"""Sources from which a planner that takes over restores each field of its state, and consequences of lost ones."""

from enum import Enum
from typing import NamedTuple

from tranche.estimate import ForecastErrors, Restarts, SpeedModel, Uploads
from tranche.estimate.capacity_wait import CapacityWaits
from tranche.estimate.declared_size import DeclaredSizes, _Moments
from tranche.estimate.forecast_error import ScoreBounds
from tranche.estimate.job_size import Sizes
from tranche.estimate.link_corrections import LinkCorrections
from tranche.estimate.link_queue import LinkQueue
from tranche.estimate.restart_cost import _NamespaceMeans
from tranche.estimate.speed_model import NormalVariable
from tranche.planner.context import PendingGangCompletion, WorkSet
from tranche.planner.job_queue import DemandClass
from tranche.planner.review_times import ReviewTimes
from tranche.state.cluster import ClusterState
from tranche.state.gang_locality import Locality, LocalityRecords
from tranche.state.helper import Server
from tranche.state.job import JobState, QueuedChunk
from tranche.state.node import FreeRoom, NodeState
from tranche.state.node_health import Exclusion, NodeHealth, PodResult, _ResultCount
from tranche.state.placement_record import FailedPreemptions, PlacementRecord
from tranche.state.quota_usage import Quotas
from tranche.state.site_usage import JobUse, SiteUsage
from tranche.state.staging import Staging
from tranche.state.tenant_usage import History, Recent, Shares
from tranche.state.topology_fit import TopologyIndex
from tranche.state.window import TrackedWindow


class Origin(Enum):
    """Source of a field after a take-over."""

    STATUS = "the plan or the ledger in the status of the job"
    LEASE = "the learned state on the Lease"
    OBJECTS = "specifications, conditions, pods, nodes, quotas and settings"
    DERIVED = "other fields, or the next decision"
    LOST = "nothing"


class Fate(NamedTuple):
    """Source of one field at a take-over."""

    origin: Origin
    effect: str = ""
    """Consequence, if the field or a part of it is lost."""


def lost(effect: str) -> Fate:
    return Fate(Origin.LOST, effect)


STATUS, LEASE, OBJECTS, DERIVED = map(Fate, (Origin.STATUS, Origin.LEASE, Origin.OBJECTS, Origin.DERIVED))
NEXT_REPORT = lost("The next report brings it.")
SMALL_PAUSES = lost("Pauses begin with the shortest one again: a job makes one early attempt.")
MEASURED_AGAIN = lost("The pace of the worker is measured from its next report on.")
EXCUSES = lost("A failure that another pod explains may count against the back-off limit, and others not again.")
NEW_COUNTER = lost("A metric begins again.")


def of(fate: Fate, fields: str) -> dict[str, Fate]:
    """Return the fate of several fields."""
    return dict.fromkeys(fields.split(), fate)


JOB = {
    **of(OBJECTS, "job end_reason eviction_blocked unplannable arrival"),
    **of(STATUS, "done partial checkpoint data_sites copies coming stagings runs servers attempts counted_gpu_seconds"),
    **of(STATUS, "use preemptions failures lost_batches records history ended victims preempted_workers placement"),
    **of(STATUS, "busy_seconds busy_since restarts granted place preferred slot_plan"),
    **of(DERIVED, "entries chunk_runs cloud returned reviewed uploaded_at burst_sites unhosted awaits_faster"),
    **of(DERIVED, "colocated topology_level nominal_batch_seconds assumed size_sigma rank_epoch level"),
    **of(DERIVED, "hosts _left _pace _first_end _window_ends _by_site _by_site_until"),
    **of(NEXT_REPORT, "applied reported"),
    **of(EXCUSES, "uncounted_failures gang_failure disconnected_at worker_failures"),
    **of(Fate(Origin.STATUS, "A pause after the failure of a parameter server ends."), "held_until hold_reason"),
    **of(SMALL_PAUSES, "node_rejections refusals disruptions disrupted_at"),
    **of(
        Fate(Origin.STATUS, "Only the nodes of the last failures in a row are avoided: a pod may be refused again."),
        "excluded_nodes node_failures",
    ),
    **of(
        lost("Policies that need it run in the simulator only."), "first_started level_since gpu_seconds_at_promotion"
    ),
    "idle_since": lost("Parameter servers that are idle are kept for their whole time again."),
}
"""Fields of a job."""
WINDOW = {
    **of(STATUS, "window"),
    **of(OBJECTS, "started pod_started phase reopens_as obsolete requests"),
    **of(DERIVED, "home batch_seconds declared_batch_seconds since left adopted held_from opened resumed"),
    **of(MEASURED_AGAIN, "predicted_batch_seconds last_report counted first_report"),
    "handover": lost("The cost of a start is not learned from a window of an earlier planner."),
    "reloaded": lost("A worker that ended before a new parameter server reported may count more than this one has."),
    "closed": lost("What stopping costs is not learned from a window that the earlier planner closed."),
    "overdue": lost("A pod that does not stop gets its whole time again before its room is reserved."),
    "start_failure": lost("The history says NotStarted in place of the reason."),
}
LINKS = {
    **of(DERIVED, "queues shares_uplinks shares_targets clouds _loads"),
    "corrections": LEASE,
}
CLUSTER = {
    **of(OBJECTS, "sites nodes jobs network places level_network seed validate requires_admission weighs_gpu_kinds"),
    **of(OBJECTS, "quotas eviction_blocked_until"),
    **of(LEASE, "locality uploads speed_model forecast_errors restarts health distribution"),
    **of(STATUS, "shares"),
    **of(DERIVED, "dispatched epoch trial_changes _measured _eligible _narrowest _free _clouds"),
    **of(NEW_COUNTER, "site_uses namespace_uses"),
    "history": Fate(Origin.OBJECTS, "Completed jobs that are deleted teach no sizes any more."),
    "scheduler_silent": lost("kube-scheduler is judged by the pods that wait, again."),
    "failed_preemptions": lost("A namespace may fail as many preemptions again before its new jobs are restrained."),
}
PLACEMENT = {
    **of(STATUS, "placed failed_preemptions failures unstarted nodes message failed_at paused_until"),
    "refusals": Fate(Origin.STATUS, "The time of a site that refuses begins again, with the shortest one."),
    "preempted_at": lost("A preemption whose pods have not started yet does not count if it fails."),
}
STAGING = {
    **of(STATUS, "site attempt chunks wanted failures problem given_up"),
    **of(DERIVED, "held_until"),
    "refusals": SMALL_PAUSES,
}
HEALTH = {
    "settings": OBJECTS,
    "exclusions": LEASE,
    "running": DERIVED,
    "started": NEW_COUNTER,
    **of(
        lost("Nodes are excluded only after as many problems as of nodes of which nothing is known."),
        "_results _groups _credible _examined _now",
    ),
}
EXCLUSION = {
    **of(LEASE, "node site since until jobs namespaces detail count phase trial_job uid"),
    **of(lost("Jobs that have left a trial to others, or have failed it, may get it again."), "put_last failed_jobs"),
}
LOCALITY = {
    **of(LEASE, "declined_seconds observed"),
    **of(STATUS, "moved_at preempted_at"),
    **of(DERIVED, "waits declining_since declined_at"),
}
SPEEDS = {
    **of(LEASE, "nodes kinds"),
    "jobs": STATUS,
    "evidence": lost("A factor of a node counts until as many jobs as for a new one have measured it."),
    "kind_evidence": lost("As that of nodes."),
    "places": lost("Workers of a job at a site, or on a GPU kind, have its common speed until they end."),
}
RESTARTS = {**of(STATUS, "start_seconds save_seconds"), "others": LEASE, **of(OBJECTS, "namespace fixed")}
ERRORS = {
    **of(LEASE, "starts completions"),
    **of(lost("The first forecast of a new planner is the first plan of each job."), "verdicts _plans _waiting"),
}
SHARES = {
    **of(OBJECTS, "capacity counted weights halflife_seconds"),
    **of(DERIVED, "held over revision reviewed looked_at review_at"),
    "_recent": Fate(Origin.STATUS, "It is spread evenly since the submission of unfinished jobs; other use is lost."),
}
HISTORY = {
    **of(OBJECTS, "completed sizes"),
    "declared": OBJECTS,
    **of(DERIVED, "observed _expected _derived"),
}
CORRECTIONS = {
    **of(LEASE, "common _own _recalled"),
    "_jobs": DERIVED,
}
JUDGED = {
    JobState: JOB,
    TrackedWindow: WINDOW,
    ClusterState: CLUSTER,
    PlacementRecord: PLACEMENT,
    Staging: STAGING,
    NodeHealth: HEALTH,
    Exclusion: EXCLUSION,
    PodResult: of(HEALTH["_results"], "job at problem counted lasted"),
    _ResultCount: of(HEALTH["_results"], "trained failed"),
    Locality: LOCALITY,
    LocalityRecords: of(LEASE, "waits jobs moving"),
    CapacityWaits: of(LEASE, "_observations"),
    SpeedModel: SPEEDS,
    NormalVariable: {
        "mean": LEASE,
        "variance": lost("Speeds are as uncertain as new ones: the next windows have slightly more weight."),
    },
    Restarts: RESTARTS,
    _NamespaceMeans: {
        "seconds": LEASE,
        "_recalled": LEASE,
        "_means": lost("All namespaces begin with the value of all."),
    },
    ScoreBounds: of(LEASE, "low high"),
    LinkQueue: of(DERIVED, "ends at"),
    ForecastErrors: ERRORS,
    Uploads: LINKS,
    LinkCorrections: CORRECTIONS,
    Shares: SHARES,
    History: HISTORY,
    Sizes: of(OBJECTS, "_by_template"),
    DeclaredSizes: of(OBJECTS, "_moments"),
    _Moments: of(OBJECTS, "count x y xx xy"),
    Server: {
        **of(STATUS, "planned"),
        **of(OBJECTS, "requests placed started never_scheduled"),
        **of(DERIVED, "since adopted"),
    },
    FailedPreemptions: of(CLUSTER["failed_preemptions"], "times restrained"),
    Quotas: of(OBJECTS, "by_namespace _taken _counts"),
    SiteUsage: of(STATUS, "gpu_seconds trained_gpu_seconds chunks copied_bytes in_vain_bytes"),
    JobUse: {
        **of(STATUS, "sites unused"),
        "counted": DERIVED,
        "trained_chunks": lost("Bytes of data that a later worker of a chunk loads at the same site count again."),
        "trained_at": lost("A chunk that is done without a further window counts for no site."),
    },
    NodeState: {
        **of(OBJECTS, "node capacity runs closing_runs"),
        **of(LEASE, "exclusion_reason learned_factor"),
        **of(DERIVED, "queues free_gpus free_room pace _reserved"),
    },
    PendingGangCompletion: of(OBJECTS, "until ends"),
    Recent: of(SHARES["_recent"], "gpu_seconds at"),
    QueuedChunk: of(DERIVED, "key state chunk home ready_at batch_seconds cost planned_start planned_end"),
    FreeRoom: of(DERIVED, "nodes gpus"),
    TopologyIndex: {"topology": OBJECTS, "_domains": DERIVED},
    ReviewTimes: {
        **of(DERIVED, "previewed preview_timer_set moves_reviewed moves_timer_set cloud_review_at cloud_timer_at"),
        **of(DERIVED, "period_timer_at"),
    },
    DemandClass: {
        **of(DERIVED, "demand site number heap cleanup_length last_tried training removed scope gpu_resource slots"),
    },
    WorkSet: of(DERIVED, "jobs nodes unbound unhosted unserved unstaged staging_pods unstaged_at_limit"),
}
"""Fate of each field, by class."""
