"""The dashboards."""

from tranche_observability.panels import Dashboard, mean, panel, per_second, quantile

THRASH_SECONDS = 64
"""A worker that was stopped earlier has hardly paid for its start; a bound of the histogram's buckets."""
_ERROR = "tranche_job_estimate_error_seconds"

JCT = Dashboard(
    "jct",
    "tranche / Job completion",
    "How long jobs take from submission to success, and how well that was foretold.",
    (
        panel(
            "Jobs completed",
            "Jobs that succeeded in the time shown.",
            ("round(sum by (namespace) (increase(tranche_job_completion_seconds_count[$__range])))", "{{namespace}}"),
            look="stat",
        ),
        panel(
            "Average completion time",
            "Of the jobs that succeeded in the time shown: what the scheduler minimises.",
            (mean("tranche_job_completion_seconds", "namespace", "$__range"), "{{namespace}}"),
            unit="s",
            look="stat",
        ),
        panel(
            "Completion time: quantiles",
            "Read from buckets that double, so a quantile is exact to a factor of two at worst.",
            *((quantile(share, "tranche_job_completion_seconds"), f"p{100 * share:g}") for share in (0.5, 0.95, 0.99)),
            unit="s",
        ),
        panel(
            "Completion time: distribution",
            "Jobs that succeeded, by completion time.",
            ("sum by (le) (increase(tranche_job_completion_seconds_bucket[$__rate_interval]))", "{{le}}"),
            unit="s",
            look="heatmap",
        ),
        panel(
            "Planned and real completion time",
            "Averages of the same jobs: as first planned, and as it was. Apart for long: estimates are wrong.",
            (mean("tranche_job_planned_completion_seconds"), "planned at first"),
            (mean("tranche_job_completion_seconds"), "real"),
            unit="s",
        ),
        panel(
            "Error of the first estimate",
            "Average seconds between the first planned and the real completion, of jobs that ended earlier or later.",
            (mean(_ERROR, "direction"), "{{direction}}"),
            unit="s",
        ),
    ),
)

QUEUE = Dashboard(
    "queue",
    "tranche / Queue",
    "Who waits, for what, for how long, and when they are planned to start.",
    (
        panel(
            "Jobs by phase",
            "Jobs that are there, without those that have ended.",
            ('max by (phase) (tranche_jobs{phase!~"Succeeded|Failed"})', "{{phase}}"),
            stacked=True,
        ),
        panel(
            "Waiting jobs by reason",
            "What binds, as status.plan.explanation says in words; reasons without a job are left out.",
            ("sum by (reason) (tranche_jobs_waiting) > 0", "{{reason}}"),
            stacked=True,
        ),
        panel(
            "Planned starts",
            "Waiting jobs that are planned to start within a minute, five minutes, …; +Inf: all that have a plan.",
            ("max by (within) (tranche_jobs_planned_start)", "≤ {{within}} s"),
        ),
        panel(
            "Oldest waiting job",
            "Age of the job that has been there longest among those that wait.",
            ("max (tranche_jobs_oldest_waiting_seconds)", "age"),
            unit="s",
        ),
        panel(
            "Queueing time",
            "From a job's creation to the start of its first pod, on average.",
            (mean("tranche_job_queueing_seconds", "namespace"), "{{namespace}}"),
            unit="s",
        ),
        panel(
            "Queueing time: 95 %",
            "The same, of the job that waited longer than 95 of 100.",
            (quantile(0.95, "tranche_job_queueing_seconds", "namespace"), "{{namespace}}"),
            unit="s",
        ),
    ),
)

SITES = Dashboard(
    "sites",
    "tranche / Sites",
    "GPUs and links of every site.",
    (
        panel(
            "GPUs in use",
            "Held by pods, ours and others'.",
            ("max by (site) (tranche_site_used_gpus)", "{{site}}"),
            stacked=True,
        ),
        panel(
            "GPUs of the nodes",
            "What there is; a step down is a node that went away.",
            ("max by (site) (tranche_site_gpus)", "{{site}}"),
            stacked=True,
        ),
        panel(
            "Utilisation",
            "In use of what there is.",
            ("max by (site) (tranche_site_used_gpus) / (max by (site) (tranche_site_gpus) > 0)", "{{site}}"),
            unit="percentunit",
        ),
        panel(
            "GPUs planned",
            "Held by plans for pods that have no node yet. High for long: pods do not start.",
            ("max by (site) (tranche_site_planned_gpus)", "{{site}}"),
        ),
        panel(
            "Copies of chunks",
            "Begun per second, from site to site.",
            (per_second("tranche_uploads_total", "source, target"), "{{source}} → {{target}}"),
            unit="ops",
        ),
        panel(
            "Copies in bytes",
            "The same in bytes per second, by spec.data.chunkSize.",
            (per_second("tranche_upload_bytes_total", "source, target"), "{{source}} → {{target}}"),
            unit="Bps",
        ),
        panel(
            "GPU-hours by site",
            "Held by workers that ended in the time shown, each from the opening of its window to the end of its pod.",
            ("sum by (site, tier) (increase(tranche_site_gpu_seconds_total[$__range])) / 3600", "{{site}} ({{tier}})"),
            look="stat",
        ),
        panel(
            "Bytes copied by site",
            "Copies of chunks' data to the site that were begun in the time shown.",
            ("sum by (site, tier) (increase(tranche_site_copied_bytes_total[$__range]))", "{{site}} ({{tier}})"),
            unit="bytes",
            look="stat",
        ),
        panel(
            "Bytes copied in vain by site",
            "Copies that no chunk trained from; a copy counts when its chunk has trained elsewhere. If that is much, "
            "fewer copies ahead of need (chunk:copies=1) save the links.",
            (
                "sum by (site, tier) (increase(tranche_site_copied_in_vain_bytes_total[$__range]))",
                "{{site}} ({{tier}})",
            ),
            unit="bytes",
            look="stat",
        ),
        panel(
            "Links: time still busy",
            "With copies that were begun, as the planner reckons.",
            ("max by (source, target) (tranche_link_busy_seconds)", "{{source}} → {{target}}"),
            unit="s",
        ),
    ),
)

PREEMPTION = Dashboard(
    "preemption",
    "tranche / Preemption",
    "Workers that are stopped before their end, and what that costs.",
    (
        panel(
            "Workers stopped",
            "Per second. planned: by the plan; preempted: by others, such as a drain; lost: with their node.",
            (per_second("tranche_preemptions_total", "reason"), "{{reason}}"),
            unit="ops",
        ),
        panel(
            "Work lost",
            "Mini-batches per second that were trained and have to be trained again.",
            (per_second("tranche_lost_batches_total"), "batches"),
            unit="ops",
        ),
        panel(
            "Thrash",
            f"Share of the stopped workers that had run for less than {THRASH_SECONDS} s.",
            (
                f'sum (rate(tranche_preempted_worker_seconds_bucket{{le="{THRASH_SECONDS}.0"}}[$__rate_interval]))'
                " / sum (rate(tranche_preempted_worker_seconds_count[$__rate_interval]))",
                "share",
            ),
            unit="percentunit",
        ),
        panel(
            "Time run before the stop",
            "Of workers that were stopped, on average.",
            (mean("tranche_preempted_worker_seconds"), "seconds"),
            unit="s",
        ),
        panel(
            "Stops per completed job",
            "In the time shown.",
            (
                "sum (increase(tranche_preemptions_total[$__range]))"
                " / sum (increase(tranche_job_completion_seconds_count[$__range]))",
                "stops",
            ),
            look="stat",
        ),
        panel(
            "Time to start a worker",
            "From its window's opening, on average; with a hand-over a preempted worker saves and goes first.",
            (mean("tranche_window_start_seconds", "handover"), "hand-over: {{handover}}"),
            unit="s",
        ),
    ),
)

SCHEDULER = Dashboard(
    "scheduler",
    "tranche / Scheduler and operator",
    "Whether the processes are well.",
    (
        panel(
            "Leader",
            "Replicas that plan: 1; for up to 15 s of a failover 0.",
            ("sum (tranche_leader)", "leaders"),
            look="stat",
        ),
        panel(
            "Extender: 99 %",
            "Time to answer kube-scheduler.",
            (quantile(0.99, "tranche_extender_request_seconds", "verb"), "{{verb}}"),
            unit="s",
        ),
        panel(
            "Extender: requests",
            "Answers per second.",
            (per_second("tranche_extender_request_seconds_count", "verb"), "{{verb}}"),
            unit="ops",
        ),
        panel(
            "Planner",
            "Time for one event; forecasts play the whole plan forward and have a share of the time only.",
            (quantile(0.5, "tranche_plan_seconds"), "event p50"),
            (quantile(0.99, "tranche_plan_seconds"), "event p99"),
            (quantile(0.99, "tranche_forecast_seconds"), "forecast p99"),
            unit="s",
        ),
        panel(
            "Status writes",
            "Per second, by how they went.",
            (per_second("tranche_status_writes_total", "result"), "{{result}}"),
            unit="ops",
        ),
        panel(
            "Errors",
            "Per second: what could not be understood, failures of watches, and reconciles that are repeated.",
            (per_second("tranche_errors_total", "kind"), "{{kind}}"),
            (per_second("tranche_watch_errors_total", "kind"), "watch {{kind}}"),
            (per_second("tranche_operator_reconcile_errors_total"), "reconcile"),
            unit="ops",
        ),
        panel(
            "Watches: silence",
            "Since the API server last said anything; it says something every minute.",
            ("max by (kind) (tranche_watch_age_seconds)", "{{kind}}"),
            unit="s",
        ),
        panel(
            "Watches: complete lists",
            "Read anew in the time shown, the first one of each process left out.",
            ("sum by (kind) (increase(tranche_watch_relists_total[$__range]))", "{{kind}}"),
            look="stat",
        ),
        panel(
            "Operator: reconciles",
            "Time of one reconcile.",
            (quantile(0.5, "tranche_operator_reconcile_seconds"), "p50"),
            (quantile(0.99, "tranche_operator_reconcile_seconds"), "p99"),
            unit="s",
        ),
        panel(
            "Operator: pods",
            "Created, evicted, deleted and refused, per second.",
            (per_second("tranche_operator_pods_total", "result"), "{{result}}"),
            unit="ops",
        ),
        panel(
            "Requests to the API server",
            "Per second, by the status of the answer; 0: no answer.",
            (per_second("tranche_api_requests_total", "code"), "{{code}}"),
            unit="ops",
        ),
        panel(
            "Memory",
            "Resident, by process.",
            (
                "max by (job) (process_resident_memory_bytes * on (instance, job) group_left tranche_build_info)",
                "{{job}}",
            ),
            unit="bytes",
        ),
    ),
)

DASHBOARDS = (JCT, QUEUE, SITES, PREEMPTION, SCHEDULER)
