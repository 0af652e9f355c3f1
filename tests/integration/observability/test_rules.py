"""The rules and every expression pass promtool; each alert fires when it should, and only then."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.yaml_text import load_yaml
from tranche_observability.dashboards import DASHBOARDS

RULES = Path(__file__).resolve().parents[3] / "helm/tranche/files/rules/tranche.yaml"
ALERTS = {rule["alert"]: rule for group in load_yaml(RULES.read_text())["groups"] for rule in group["rules"]}
Series = dict[str, str]
"""Samples, one a minute, by series; as promtool writes them: a+bxn is n steps of b from a."""

EXTENDER = "tranche_extender_request_seconds_bucket"
DELAY = "tranche_extender_delay_seconds_bucket"
STARTS = "tranche_window_start_seconds_count"
STOPPED = "tranche_preempted_worker_seconds"
ERRORS = "tranche_job_estimate_error_seconds"
PLANNED = "tranche_job_planned_completion_seconds_sum"
PLACES = "tranche_job_interval_outcomes_total"
CERTIFICATE, UNIX = "tranche_report_certificate_not", "_timestamp_seconds"

FIRES: dict[str, list[Series]] = {
    "TrancheNoLeader": [{'tranche_leader{instance="a"}': "0x600", 'tranche_leader{instance="b"}': "0x600"}, {}],
    "TrancheSeveralLeaders": [{'tranche_leader{instance="a"}': "1x600", 'tranche_leader{instance="b"}': "1x600"}],
    "TrancheOperatorNotReady": [{"tranche_operator_ready": "0x600"}, {}],
    "TrancheProcessMissing": [
        {},
        {'tranche_build_info{process="extender"}': "1x600"},
        {'tranche_build_info{process="api"}': "1x600"},
        {'tranche_build_info{process="extender"}': "1x600", 'tranche_build_info{process="api"}': "1x300"},
    ],
    "TrancheWatchSilent": [{'tranche_watch_age_seconds{kind="pods",instance="a"}': "0+60x600"}],
    "TrancheWatchRestarts": [{'tranche_watch_relists_total{kind="pods",instance="a"}': "0+1x600"}],
    "TrancheErrors": [{'tranche_errors_total{kind="object"}': "0x590 1x9"}],
    "TrancheStatusWritesRefused": [{'tranche_status_writes_total{result="refused"}': "0x590 1x9"}],
    "TrancheApiErrors": [
        {
            f'tranche_api_requests_total{{job="s",code="{code}"}}': "0+10x600",
            'tranche_api_requests_total{job="s",code="200"}': "0+100x600",
        }
        for code in ("0", "429", "503")
    ],
    "TrancheCertificateExpires": [{f"{CERTIFICATE}_before{UNIX}": "0x600", f"{CERTIFICATE}_after{UNIX}": "43200x600"}],
    "TrancheReconcileErrors": [
        {
            "tranche_operator_reconcile_errors_total": "0+20x600",
            "tranche_operator_reconcile_seconds_count": "0+100x600",
        }
    ],
    "TrancheExtenderSlow": [
        {
            f'{EXTENDER}{{verb="filter",le="0.1"}}': "0+90x600",
            f'{EXTENDER}{{verb="filter",le="+Inf"}}': "0+100x600",
            f'{EXTENDER}{{verb="filter",le="0.5"}}': "0+100x600",
        }
    ],
    "TrancheExtenderBusy": [
        {f'{DELAY}{{le="{most}"}}': f"0+{n}x600" for most, n in (("0.1", 90), ("0.5", 100), ("+Inf", 100))}
    ],
    "TranchePlannerSlow": [
        {
            'tranche_plan_seconds_bucket{le="0.5"}': "0+90x600",
            'tranche_plan_seconds_bucket{le="+Inf"}': "0+100x600",
            'tranche_plan_seconds_bucket{le="2.0"}': "0+100x600",
        }
    ],
    "TrancheJobsCannotBePlaced": [
        {f'tranche_jobs_waiting{{reason="{reason}"}}': "1x600"} for reason in ("Size", "Gang", "Unplannable")
    ],
    "TrancheJobWaitsLong": [{"tranche_jobs_oldest_waiting_seconds": "86401x600"}],
    "TranchePodsDoNotStart": [{'tranche_jobs{phase="Starting"}': "2x600", f'{STARTS}{{handover="no"}}': "7x600"}],
    "TrancheNodesExcluded": [{'tranche_site_excluded_nodes{site="edge-a"}': "1x600"}],
    "TrancheContainersDoNotStart": [{'tranche_pods_not_started_total{reason="ImagePull"}': "0+1x600"}],
    "TrancheKubeSchedulerSilent": [
        {
            'tranche_kube_scheduler_responds{instance="a"}': "0x600",
            'tranche_kube_scheduler_responds{instance="b"}': "1x600",
        }
    ],
    "TranchePodsRefused": [{'tranche_operator_pods_total{role="worker",result="refused"}': "0+1x600"}],
    "TranchePodsDoNotStop": [{"tranche_operator_pods_not_stopping": "1x600"}],
    "TrancheWorkersLost": [{'tranche_preemptions_total{reason="lost"}': "0+1x600"}],
    "TrancheThrash": [{f'{STOPPED}_bucket{{le="64.0"}}': "0+6x600", f"{STOPPED}_count": "0+10x600"}],
    "TrancheEstimatesOff": [
        {
            f'{ERRORS}_sum{{direction="late"}}': "0+60x600",
            f'{ERRORS}_count{{direction="late"}}': "0+1x600",
            f'{PLANNED}{{namespace="a"}}': "0+100x600",
        }
    ],
    "TrancheIntervalsOff": [
        {f'{PLACES}{{place="inside"}}': "0+6x600", f'{PLACES}{{place="late"}}': "0+4x600"},
        {f'{PLACES}{{place="inside"}}': "0+10x600", f'{PLACES}{{place="early"}}': "0x600"},
        {f'{PLACES}{{place="inside"}}': "0x600", f'{PLACES}{{place="early"}}': "0+10x600"},
    ],
}
QUIET: dict[str, list[Series]] = {
    "TrancheNoLeader": [{'tranche_leader{instance="a"}': "0x600", 'tranche_leader{instance="b"}': "1x600"}],
    "TrancheSeveralLeaders": [{'tranche_leader{instance="a"}': "1x600", 'tranche_leader{instance="b"}': "0x600"}],
    "TrancheOperatorNotReady": [{"tranche_operator_ready": "1x600"}],
    "TrancheProcessMissing": [
        {
            'tranche_build_info{process="extender",instance="a"}': "1x600",
            'tranche_build_info{process="api",instance="a"}': "1x300",
            'tranche_build_info{process="api",instance="b"}': "1x600",
        }
    ],
    "TrancheWatchSilent": [{'tranche_watch_age_seconds{kind="pods",instance="a"}': "170x600"}],
    "TrancheWatchRestarts": [{'tranche_watch_relists_total{kind="pods",instance="a"}': "1x600"}],
    "TrancheErrors": [{'tranche_errors_total{kind="object"}': "5x600"}],
    "TrancheStatusWritesRefused": [
        {
            'tranche_status_writes_total{result="refused"}': "3x600",
            'tranche_status_writes_total{result="gone"}': "0+1x600",
        }
    ],
    "TrancheApiErrors": [
        {
            'tranche_api_requests_total{job="s",code="409"}': "0+50x600",
            'tranche_api_requests_total{job="s",code="500"}': "0+1x600",
            'tranche_api_requests_total{job="s",code="200"}': "0+100x600",
        }
    ],
    "TrancheCertificateExpires": [{f"{CERTIFICATE}_before{UNIX}": "0x600", f"{CERTIFICATE}_after{UNIX}": "54000x600"}],
    "TrancheReconcileErrors": [
        {"tranche_operator_reconcile_errors_total": "0+5x600", "tranche_operator_reconcile_seconds_count": "0+100x600"}
    ],
    "TrancheExtenderSlow": [
        {f'{EXTENDER}{{verb="filter",le="0.1"}}': "0+100x600", f'{EXTENDER}{{verb="filter",le="+Inf"}}': "0+100x600"}
    ],
    "TrancheExtenderBusy": [{f'{DELAY}{{le="{most}"}}': "0+100x600" for most in ("0.1", "+Inf")}],
    "TranchePlannerSlow": [
        {'tranche_plan_seconds_bucket{le="0.5"}': "0+100x600", 'tranche_plan_seconds_bucket{le="+Inf"}': "0+100x600"}
    ],
    "TrancheJobsCannotBePlaced": [{'tranche_jobs_waiting{reason="Room"}': "9x600"}],
    "TrancheJobWaitsLong": [{"tranche_jobs_oldest_waiting_seconds": "86000x600"}],
    "TranchePodsDoNotStart": [
        {'tranche_jobs{phase="Starting"}': "2x600", f'{STARTS}{{handover="no"}}': "0+1x600"},
        {'tranche_jobs{phase="Starting"}': "0x600", f'{STARTS}{{handover="no"}}': "7x600"},
    ],
    "TrancheNodesExcluded": [{'tranche_site_excluded_nodes{site="edge-a"}': "0x600"}],
    "TrancheContainersDoNotStart": [{'tranche_pods_not_started_total{reason="refused"}': "0+1x600"}],
    "TrancheKubeSchedulerSilent": [{"tranche_kube_scheduler_responds": "1x600"}],
    "TranchePodsRefused": [{'tranche_operator_pods_total{role="worker",result="created"}': "0+9x600"}],
    "TranchePodsDoNotStop": [{"tranche_operator_pods_not_stopping": "0x600"}],
    "TrancheWorkersLost": [{'tranche_preemptions_total{reason="planned"}': "0+9x600"}],
    "TrancheThrash": [
        {f'{STOPPED}_bucket{{le="64.0"}}': "0+4x600", f"{STOPPED}_count": "0+10x600"},
        {f'{STOPPED}_bucket{{le="64.0"}}': "0x580 0+1x19", f"{STOPPED}_count": "0x580 0+1x19"},
    ],
    "TrancheEstimatesOff": [
        {
            f'{ERRORS}_sum{{direction="late"}}': "0+40x600",
            f'{ERRORS}_count{{direction="late"}}': "0+1x600",
            f'{PLANNED}{{namespace="a"}}': "0+100x600",
        }
    ],
    "TrancheIntervalsOff": [
        {f'{PLACES}{{place="inside"}}': "0+7x600", f'{PLACES}{{place="late"}}': "0+3x600"},
        {f'{PLACES}{{place="inside"}}': "0+9x600", f'{PLACES}{{place="early"}}': "0+1x600"},
        {f'{PLACES}{{place="inside"}}': "0x560 0+1x19", f'{PLACES}{{place="late"}}': "0x560 0+1x19 20x20"},
    ],
}


def run(promtool: Path, *words: str | Path) -> None:
    done = subprocess.run([promtool, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def firing(promtool: Path, folder: Path, alert: str, series: Series, *, fires: bool) -> None:
    """Check that the alert fires, or does not, ten hours after the first sample; labels and texts are not compared."""
    samples = [{"series": name, "values": values} for name, values in (series or {"up": "1x600"}).items()]
    count = f'count(ALERTS{{alertname="{alert}",alertstate="firing"}}) > bool 0'
    expected: list[dict[str, Any]] = [{"value": 1}] if fires else []
    check = {"expr": count, "eval_time": "600m", "exp_samples": expected}
    test = {"interval": "1m", "input_series": samples, "promql_expr_test": [check]}
    file, rule = folder / "test.yaml", folder / "rule.yaml"
    rule.write_text(yaml.safe_dump({"groups": [{"name": "one", "rules": [ALERTS[alert]]}]}))
    file.write_text(yaml.safe_dump({"rule_files": [str(rule)], "evaluation_interval": "1m", "tests": [test]}))
    run(promtool, "test", "rules", file)


def test_promtool_accepts_the_rules(programs: dict[str, Path]) -> None:
    run(programs["promtool"], "check", "rules", RULES)


def test_promtool_accepts_every_expression_of_every_panel(programs: dict[str, Path], tmp_path: Path) -> None:
    queries = [query for dashboard in DASHBOARDS for panel in dashboard.panels for query in panel.queries]
    rules = [{"record": f"query_{n}", "expr": query.over("5m")} for n, query in enumerate(queries)]
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "all", "rules": rules}]}))
    run(programs["promtool"], "check", "rules", file)


def test_every_alert_is_tested_both_ways() -> None:
    assert list(FIRES) == list(QUIET) == list(ALERTS)


@pytest.mark.parametrize("alert", ALERTS)
def test_it_fires_when_it_should(programs: dict[str, Path], tmp_path: Path, alert: str) -> None:
    for series in FIRES[alert]:
        firing(programs["promtool"], tmp_path, alert, series, fires=True)


@pytest.mark.parametrize("alert", ALERTS)
def test_it_does_not_fire_else(programs: dict[str, Path], tmp_path: Path, alert: str) -> None:
    for series in QUIET[alert]:
        firing(programs["promtool"], tmp_path, alert, series, fires=False)
