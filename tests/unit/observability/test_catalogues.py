"""Dashboards, rules, runbook and the reference of metrics agree with the registries and with each other."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from support.doc_pages import anchors
from support.yaml_text import load_yaml
from tranche.metrics.scheduler import COMPLETION_BUCKETS
from tranche.planner.forecast.wait_reason import PERMANENT
from tranche_codegen.files import differences
from tranche_observability.__main__ import generated_files, main
from tranche_observability.dashboards import DASHBOARDS, THRASH_SECONDS
from tranche_observability.metrics_reference import definitions, registries, series
from tranche_observability.panels import Dashboard, Query

ROOT = Path(__file__).resolve().parents[3]
RULES: list[dict[str, Any]] = [
    rule
    for group in load_yaml((ROOT / "helm/tranche/files/rules/tranche.yaml").read_text())["groups"]
    for rule in group["rules"]
]
LABELS = {name: d.labels for known in definitions().values() for d in known.values() for name in d.series}


def test_the_committed_files_are_what_the_code_generates() -> None:
    assert differences(generated_files(ROOT), ROOT) == []


def test_a_file_that_was_edited_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--root", str(tmp_path)]) == 0
    edited = tmp_path / "helm/tranche/files/dashboards/jct.json"
    edited.write_text(edited.read_text().replace("Jobs completed", "Jobs"))
    assert main(["--root", str(tmp_path), "--check"]) == 1
    assert "jct.json: 1 lines to add, 1 to remove" in capsys.readouterr().out


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda d: d.name)
def test_every_metric_of_a_dashboard_is_in_a_registry(dashboard: Dashboard) -> None:
    for panel in dashboard.panels:
        for query in panel.queries:
            assert query.names, panel.title
            assert query.names <= series(), panel.title


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda d: d.name)
def test_a_legend_names_only_labels_that_the_expression_keeps(dashboard: Dashboard) -> None:
    for panel in dashboard.panels:
        for query in panel.queries:
            kept = set(re.findall(r"\w+", " ".join(re.findall(r"by \(([^)]*)\)", query.expression))))
            assert set(re.findall(r"\{\{(\w+)\}\}", query.legend)) <= kept, panel.title


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda d: d.name)
def test_an_expression_asks_only_for_labels_that_its_metric_has(dashboard: Dashboard) -> None:
    for panel in dashboard.panels:
        for query in panel.queries:
            known = {label for name in query.names for label in LABELS.get(name, ())} | {"le", "job", "instance"}
            labels = set(re.findall(r"\w+", " ".join(re.findall(r"(?:by|on) \(([^)]*)\)", query.expression))))
            assert labels <= known, panel.title


def test_panels_of_a_page_do_not_overlap_and_have_a_text() -> None:
    for dashboard in DASHBOARDS:
        document = json.loads((ROOT / f"helm/tranche/files/dashboards/{dashboard.name}.json").read_text())
        places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in document["panels"]]
        assert len(set(places)) == len(places)
        assert all(panel["description"] for panel in document["panels"])


def test_cells_of_a_heatmap_count_and_its_axis_has_the_unit() -> None:
    document = json.loads((ROOT / "helm/tranche/files/dashboards/jct.json").read_text())
    (heatmap,) = [panel for panel in document["panels"] if panel["type"] == "heatmap"]
    assert heatmap["fieldConfig"]["defaults"]["unit"] == "short"
    assert heatmap["options"]["yAxis"]["unit"] == "s"


def test_the_data_source_of_all_panels_is_a_complete_variable() -> None:
    for path in (ROOT / "helm/tranche/files/dashboards").glob("*.json"):
        document = json.loads(path.read_text())
        (variable,) = document["templating"]["list"]
        assert variable["current"] == {}, "some versions of Grafana drop a variable without it"
        used = {panel["datasource"]["uid"] for panel in document["panels"]}
        assert used == {f"${{{variable['name']}}}"}


def test_the_alert_about_placement_has_every_lasting_reason() -> None:
    (rule,) = [rule for rule in RULES if rule["alert"] == "TrancheJobsCannotBePlaced"]
    reasons = re.findall(r'reason=~"([^"]+)"', rule["expr"])[0].split("|")
    assert set(reasons) == {*PERMANENT, "NoNodes", "Unplannable"}


def test_the_bound_of_thrash_is_a_bucket() -> None:
    assert THRASH_SECONDS in COMPLETION_BUCKETS
    assert any(f'le="{float(THRASH_SECONDS)}"' in q.expression for d in DASHBOARDS for p in d.panels for q in p.queries)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_every_alert_has_known_metrics_severity_and_runbook(rule: dict[str, Any]) -> None:
    assert Query(rule["expr"]).names <= series()
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert rule["annotations"]["summary"]
    assert rule["annotations"]["description"]
    name = rule["alert"]
    assert rule["annotations"]["runbook"] == f"docs/how-to/runbook.md#{name.lower()}"
    assert name.lower() in anchors(ROOT / "docs/how-to/runbook.md")
    section = (ROOT / "docs/how-to/runbook.md").read_text().partition(f"## {name}\n")[2].partition("\n## ")[0]
    assert all(f"**{part}**" in section for part in ("Means", "Confirm", "Do"))


def test_every_section_of_the_runbook_is_of_an_alert() -> None:
    headings = re.findall(r"^## (\w+)$", (ROOT / "docs/how-to/runbook.md").read_text(), re.M)
    assert headings == [rule["alert"] for rule in RULES]


def test_no_series_has_the_name_of_a_job_a_pod_or_a_node() -> None:
    labels = {label for known in definitions().values() for d in known.values() for label in d.labels}
    assert not labels & {"name", "job", "pod", "node", "trainingjob", "uid"}


def test_what_is_defined_is_what_is_served() -> None:
    for process, metrics in registries().items():
        text = metrics.render().decode()
        served = {
            name: kind for name, kind in re.findall(r"^# TYPE (\w+) (\w+)$", text, re.M) if "_created" not in name
        }
        own = {name: kind for name, kind in served.items() if name.startswith("tranche_")}
        assert own == {name: d.kind for name, d in definitions()[process].items()}
