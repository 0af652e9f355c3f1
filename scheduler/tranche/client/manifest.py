"""Manifests of TrainingJobs: files, YAML text or objects."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tranche.client.errors import ManifestError
from tranche.kube.convert.manifest import training_job_manifest

Manifest = Mapping[str, Any] | str | Path
"""Object, YAML or JSON text, or path of a file. A text of one line is a path if a file of that name exists."""


def read_manifest(manifest: Manifest, source: str = "") -> dict[str, Any]:
    """Read a manifest and check that it is a TrainingJob; the API server validates the rest.

    Args:
        manifest: Object, text, or path of a file.
        source: Name in error messages; default: the path.

    Raises:
        ManifestError: it is not exactly one TrainingJob.
    """
    if isinstance(manifest, Mapping):
        return _checked([dict(manifest)], source or "the manifest")
    if isinstance(manifest, str) and _is_text(manifest):
        return _parsed(manifest, source or "the manifest")
    path = Path(manifest)
    try:
        return _parsed(path.read_text(encoding="utf-8"), source or str(path))
    except OSError as error:
        raise ManifestError(f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ManifestError(f"{path}: not valid UTF-8 text") from None


def _is_text(manifest: str) -> bool:
    begins = manifest.lstrip()[:1]
    return begins in ("", "{") or "\n" in manifest or (": " in manifest and not Path(manifest).exists())


def _parsed(text: str, source: str) -> dict[str, Any]:
    try:
        documents = list(yaml.safe_load_all(text))
    except (yaml.YAMLError, RecursionError) as error:
        raise ManifestError(f"{source}: not valid YAML: {' '.join(str(error).split())}") from None
    return _checked(documents, source)


def _checked(documents: Sequence[Any], source: str) -> dict[str, Any]:
    try:
        return training_job_manifest(documents)
    except ValueError as error:
        raise ManifestError(f"{source}: {error}") from None
