"""Dashboards as the JSON that Grafana imports."""

import json
from typing import Any

from tranche_observability.panels import Dashboard, Panel

SCHEMA_VERSION = 39
"""Schema version of Grafana 10.4 and later."""
WIDTH, HEIGHT = 12, 8
"""Size of a panel in grid units; a row has 24."""
_DATASOURCE: dict[str, Any] = {
    "name": "datasource",
    "label": "Prometheus",
    "type": "datasource",
    "query": "prometheus",
    "current": {},
    "options": [],
    "regex": "",
    "refresh": 1,
    "hide": 0,
    "multi": False,
    "includeAll": False,
}
"""Variable for the data source. Some versions of Grafana drop a variable without `current`, and with it all data."""
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def dashboard_json(dashboard: Dashboard) -> str:
    """Return the file of a dashboard."""
    document = {
        "uid": f"tranche-{dashboard.name}",
        "title": dashboard.title,
        "description": dashboard.text,
        "tags": ["tranche"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "browser",
        "links": [
            {
                "type": "dashboards",
                "tags": ["tranche"],
                "title": "tranche",
                "asDropdown": True,
                "keepTime": True,
                "includeVars": True,
            }
        ],
        "templating": {"list": [_DATASOURCE]},
        "annotations": {"list": []},
        "panels": [_panel(panel, number) for number, panel in enumerate(dashboard.panels)],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _panel(panel: Panel, number: int) -> dict[str, Any]:
    return {
        "id": number + 1,
        "type": panel.look,
        "title": panel.title,
        "description": panel.text,
        "datasource": _SOURCE,
        "gridPos": {"w": WIDTH, "h": HEIGHT, "x": WIDTH * (number % 2), "y": HEIGHT * (number // 2)},
        "fieldConfig": {"defaults": _field(panel), "overrides": []},
        "options": _options(panel),
        "targets": [
            {
                "refId": chr(ord("A") + position),
                "datasource": _SOURCE,
                "expr": query.expression,
                "legendFormat": query.legend,
                "format": "heatmap" if panel.look == "heatmap" else "time_series",
                "instant": panel.look == "stat",
                "range": panel.look != "stat",
            }
            for position, query in enumerate(panel.queries)
        ],
    }


def _field(panel: Panel) -> dict[str, Any]:
    if panel.look == "heatmap":
        return {"unit": "short"}  # of the cells, which count; the axis has the unit of the panel
    if panel.look == "stat":
        return {"unit": panel.unit}
    stacking = {"mode": "normal", "group": "A"} if panel.stacked else {"mode": "none"}
    custom = {"lineWidth": 1, "fillOpacity": 30 if panel.stacked else 0, "showPoints": "never", "stacking": stacking}
    return {"unit": panel.unit, "min": 0, "custom": custom}


def _options(panel: Panel) -> dict[str, Any]:
    match panel.look:
        case "stat":
            return {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "none", "textMode": "value_and_name"}
        case "heatmap":
            return {"calculate": False, "yAxis": {"unit": panel.unit}, "color": {"scheme": "Blues"}}
    return {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}}
