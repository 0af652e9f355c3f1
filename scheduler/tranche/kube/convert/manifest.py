"""Manifest of one TrainingJob, from the objects of a YAML or JSON text."""

from collections.abc import Sequence
from typing import Any

from tranche.kube.api.resources import API_VERSION


def training_job_manifest(objects: Sequence[Any]) -> dict[str, Any]:
    """Return the only object, if it is a TrainingJob of our API version; its fields are not checked.

    Args:
        objects: Objects of a text, as parsed; None stands for an empty document.

    Raises:
        ValueError: they are not exactly one TrainingJob; the message continues a sentence about the text.
    """
    found = [one for one in objects if one is not None]
    if len(found) != 1:
        raise ValueError(f"contains {len(found)} objects: provide exactly one TrainingJob")
    (one,) = found
    if not isinstance(one, dict):
        raise ValueError("is not a mapping: provide a TrainingJob")
    kind = one.get("kind")
    if kind is None:
        raise ValueError("has no field kind: provide a TrainingJob")
    if kind != "TrainingJob":
        raise ValueError(f"is a {str(kind)[:40]}, not a TrainingJob")
    if one.get("apiVersion") != API_VERSION:
        raise ValueError(f"has the apiVersion {one.get('apiVersion')!r}, not {API_VERSION}")
    if not isinstance(one.get("metadata"), dict):
        raise ValueError("has no metadata")
    checked: dict[str, Any] = one
    return checked
