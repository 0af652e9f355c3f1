"""Metrics that kube-state-metrics makes of a custom resource by the parts of CustomResourceState that ours needs.

The real one cannot be built here: the Go module proxy does not serve its module. The rules are those of its
documentation: a gauge reads a field of the object at its path, RFC 3339 times become seconds, absent fields no series.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def series_of(config: Mapping[str, Any], thing: Mapping[str, Any]) -> Series:
    """All series of one object, by name and labels."""
    found: Series = {}
    for resource in config["spec"]["resources"]:
        labels = {name: str(_at(thing, path)) for name, path in resource["labelsFromPath"].items()}
        for metric in resource["metrics"]:
            name = f"{resource['metricNamePrefix']}_{metric['name']}"
            for more, value in _values(metric["each"], thing):
                found[name, tuple(sorted({**labels, **more}.items()))] = value
    return found


def _values(each: Mapping[str, Any], thing: Mapping[str, Any]) -> list[tuple[dict[str, str], float]]:
    match each["type"]:
        case "StateSet":
            asked = each["stateSet"]
            state = _at(thing, asked["path"])
            return [({asked["labelName"]: one}, float(one == state)) for one in asked["list"]] if state else []
        case "Gauge":
            value = _at(thing, [*each["gauge"]["path"], *each["gauge"]["valueFrom"]])
            return [] if value is None else [({}, _number(value))]
    raise ValueError(f"no such type: {each['type']}")


def _at(thing: Any, path: Sequence[str]) -> Any:
    for part in path:
        thing = thing.get(part) if isinstance(thing, Mapping) else None
    return thing


def _number(value: Any) -> float:
    return datetime.fromisoformat(value).timestamp() if isinstance(value, str) else float(value)
