"""Definitions of the dashboards."""

from tranche_observability.panels import Dashboard, mean, panel, per_second, quantile

THRASH_SECONDS = 64
"""Run time below which stopping a worker counts as thrash: it has hardly paid for its start. A bound of the buckets."""
_ERROR = "tranche_job_estimate_error_seconds"
_PLACES = "tranche_job_interval_outcomes_total"

JCT = Dashboard(
    "jct",
    "tranche / Job completion",
    "Time from submission to success, and how accurate the estimates were.",
    (
        panel(
            "Jobs completed",
            "Jobs that succeeded in the time shown.",
            ("round(sum by (namespace) (increase(tranche_job_completion_seconds_count[$__range])))", "{{namespace}}"),
            look="stat",
        ),
        panel(
            "Average completion time",
            "Average over the jobs that succeeded in the time shown; the scheduler minimises it.",
            (mean("tranche_job_completion_seconds", "namespace", "$__range"), "{{namespace}}"),
            unit="s",
            look="stat",
        ),
        panel(
            "Completion time: quantiles",
            "Computed from buckets that double, so a quantile is accurate to a factor of two.",
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
            "Averages of the same jobs, as first planned and as measured. A lasting difference means wrong estimates.",
            (mean("tranche_job_planned_completion_seconds"), "planned at first"),
            (mean("tranche_job_completion_seconds"), "real"),
            unit="s",
        ),
        panel(
            "Error of the first estimate",
            "Average difference between first planned and real completion, of jobs that ended earlier or later.",
            (mean(_ERROR, "direction"), "{{direction}}"),
            unit="s",
        ),
        panel(
            "Completions in their first interval",
            "Share of the jobs that succeeded in the time shown inside, before and after their first interval. Inside "
            "should be 80 %.",
            (
                f"sum by (place) (increase({_PLACES}[$__range])) / scalar(sum (increase({_PLACES}[$__range])))",
                "{{place}}",
            ),
            unit="percentunit",
            look="stat",
        ),
    ),
)

QUEUE = Dashboard(
    "queue",
    "tranche / Queue",
    "Waiting jobs: number, reason, age and planned start.",
    (
        panel(
            "Jobs by phase",
            "Jobs that have not ended.",
            ('max by (phase) (tranche_jobs{phase!~"Succeeded|Failed"})', "{{phase}}"),
            stacked=True,
        ),
        panel(
            "Waiting jobs by reason",
            "Constraint that keeps jobs waiting, as in status.plan.explanation. Reasons without jobs are left out.",
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
            "Age of the oldest waiting job.",
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
            "95th percentile of the same time.",
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
            "GPUs that pods of any kind hold.",
            ("max by (site, resource) (tranche_site_used_gpus)", "{{site}} {{resource}}"),
            stacked=True,
        ),
        panel(
            "GPUs of the nodes",
            "GPUs of all nodes; a step down is a lost node.",
            ("max by (site, resource) (tranche_site_gpus)", "{{site}} {{resource}}"),
            stacked=True,
        ),
        panel(
            "Utilisation",
            "GPUs in use over GPUs of the nodes.",
            (
                "max by (site, resource) (tranche_site_used_gpus) / (max by (site, resource) (tranche_site_gpus) > 0)",
                "{{site}} {{resource}}",
            ),
            unit="percentunit",
        ),
        panel(
            "GPUs planned",
            "GPUs that plans reserve for pods without a node. A lasting high value means that pods do not start.",
            ("max by (site, resource) (tranche_site_planned_gpus)", "{{site}} {{resource}}"),
        ),
        panel(
            "Nodes excluded",
            "Nodes that take no pods because pods of several jobs failed or were refused there.",
            ("max by (site) (tranche_site_excluded_nodes)", "{{site}}"),
        ),
        panel(
            "Copies of chunks",
            "Copies that begin per second, by pair of sites.",
            (per_second("tranche_uploads_total", "source, target"), "{{source}} → {{target}}"),
            unit="cps",
        ),
        panel(
            "Copies in bytes",
            "Bytes per second of these copies, by spec.data.chunkSize.",
            (per_second("tranche_upload_bytes_total", "source, target"), "{{source}} → {{target}}"),
            unit="Bps",
        ),
        panel(
            "GPU-hours by site",
            "GPU time of workers that ended in the time shown, from the opening of the window to the end of the pod.",
            ("sum by (site, tier) (increase(tranche_site_gpu_seconds_total[$__range])) / 3600", "{{site}} ({{tier}})"),
            look="stat",
        ),
        panel(
            "Bytes copied by site",
            "Data of chunks whose copy to the site began in the time shown.",
            ("sum by (site, tier) (increase(tranche_site_copied_bytes_total[$__range]))", "{{site}} ({{tier}})"),
            unit="bytes",
            look="stat",
        ),
        panel(
            "Bytes copied but unused by site",
            "Copies that no chunk trained from; a copy counts once its chunk has trained elsewhere. If this is high, "
            "fewer copies ahead of need (chunk:copies=1) relieve the links.",
            (
                "sum by (site, tier) (increase(tranche_site_copied_in_vain_bytes_total[$__range]))",
                "{{site}} ({{tier}})",
            ),
            unit="bytes",
            look="stat",
        ),
        panel(
            "Links: time still busy",
            "Time that copies under way will still take, as the planner estimates.",
            ("max by (source, target) (tranche_link_busy_seconds)", "{{source}} → {{target}}"),
            unit="s",
        ),
    ),
)

PREEMPTION = Dashboard(
    "preemption",
    "tranche / Preemption",
    "Workers that stop before their chunks are done, and the cost.",
    (
        panel(
            "Workers stopped",
            "Rate by reason. planned: by the plan; preempted: by others, such as a drain; lost: with the node.",
            (per_second("tranche_preemptions_total", "reason"), "{{reason}}"),
            unit="cps",
        ),
        panel(
            "Pods without a started container",
            "Rate by reason. refused: by the kubelet; others: stopped because their containers did not start in time.",
            (per_second("tranche_pods_not_started_total", "reason"), "{{reason}}"),
            unit="cps",
        ),
        panel(
            "Work lost",
            "Mini-batches per second that must be trained again.",
            (per_second("tranche_lost_batches_total"), "batches"),
            unit="cps",
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
            "Average run time of workers that were stopped.",
            (mean("tranche_preempted_worker_seconds"), "seconds"),
            unit="s",
        ),
        panel(
            "Stops per completed job",
            "Stopped workers over completed jobs, in the time shown.",
            (
                "sum (increase(tranche_preemptions_total[$__range]))"
                " / sum (increase(tranche_job_completion_seconds_count[$__range]))",
                "stops",
            ),
            look="stat",
        ),
        panel(
            "Time to start a worker",
            "Average time from the opening of the window; with a hand-over, a preempted worker saves and exits first.",
            (mean("tranche_window_start_seconds", "handover"), "hand-over: {{handover}}"),
            unit="s",
        ),
    ),
)

SCHEDULER = Dashboard(
    "scheduler",
    "tranche / Scheduler and operator",
    "Health of the processes.",
    (
        panel(
            "Leader",
            "Number of leading replicas: 1, or 0 for up to 15 s during a failover.",
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
            "Requests answered per second.",
            (per_second("tranche_extender_request_seconds_count", "verb"), "{{verb}}"),
            unit="reqps",
        ),
        panel(
            "Planner",
            "Time to handle one event. Forecasts simulate the whole plan; their share of the CPU time is bounded.",
            (quantile(0.5, "tranche_plan_seconds"), "event p50"),
            (quantile(0.99, "tranche_plan_seconds"), "event p99"),
            (quantile(0.99, "tranche_forecast_seconds"), "forecast p99"),
            unit="s",
        ),
        panel(
            "Status writes",
            "Rate by result.",
            (per_second("tranche_status_writes_total", "result"), "{{result}}"),
            unit="wps",
        ),
        panel(
            "Errors",
            "Rate of invalid objects and requests, failed watches, and reconciles that are retried.",
            (per_second("tranche_errors_total", "kind"), "{{kind}}"),
            (per_second("tranche_watch_errors_total", "kind"), "watch {{kind}}"),
            (per_second("tranche_operator_reconcile_errors_total"), "reconcile"),
            unit="cps",
        ),
        panel(
            "Watches: silence",
            "Time since the API server last sent anything; it sends a bookmark about once a minute.",
            ("max by (kind) (tranche_watch_age_seconds)", "{{kind}}"),
            unit="s",
        ),
        panel(
            "Watches: complete lists",
            "Lists read again in the time shown, without the first of each process.",
            ("sum by (kind) (increase(tranche_watch_relists_total[$__range]))", "{{kind}}"),
            look="stat",
        ),
        panel(
            "Operator: reconciles",
            "Duration of one reconcile.",
            (quantile(0.5, "tranche_operator_reconcile_seconds"), "p50"),
            (quantile(0.99, "tranche_operator_reconcile_seconds"), "p99"),
            unit="s",
        ),
        panel(
            "Operator: pods",
            "Pods created, evicted, deleted and refused, per second.",
            (per_second("tranche_operator_pods_total", "result"), "{{result}}"),
            unit="cps",
        ),
        panel(
            "Requests to the API server",
            "Rate by status code of the response; 0: no response.",
            (per_second("tranche_api_requests_total", "code"), "{{code}}"),
            unit="reqps",
        ),
        panel(
            "Memory",
            "Resident memory by process.",
            (
                "max by (process) (process_resident_memory_bytes * on (instance, job) group_left (process)"
                " tranche_build_info)",
                "{{process}}",
            ),
            unit="bytes",
        ),
    ),
)

DASHBOARDS = (JCT, QUEUE, SITES, PREEMPTION, SCHEDULER)
