"""Manifests that are no TrainingJob."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tranche.client import ManifestError
from tranche.client.manifest import read_manifest


@pytest.mark.parametrize(
    ("manifest", "says"),
    [
        ("hello: world", "the manifest: has no field kind: provide a TrainingJob"),
        ({"a": 1}, "the manifest: has no field kind: provide a TrainingJob"),
        ("a: 1\nb: 2", "the manifest: has no field kind: provide a TrainingJob"),
        (" ", "the manifest: contains 0 objects: provide exactly one TrainingJob"),
        ("", "the manifest: contains 0 objects: provide exactly one TrainingJob"),
        ("- 1\n- 2\n---\n", "the manifest: is not a mapping: provide a TrainingJob"),
        ("job.yaml", "job.yaml: No such file or directory"),
    ],
)
def test_manifest_error_says_what_is_missing(manifest: str | Mapping[str, Any], says: str) -> None:
    with pytest.raises(ManifestError) as raised:
        read_manifest(manifest)
    assert str(raised.value) == says


def test_name_of_a_file_with_a_colon_is_a_path(tmp_path: Path) -> None:
    path = tmp_path / "job: one.yaml"
    path.write_text("kind: Pod")
    with pytest.raises(ManifestError, match=r"job: one\.yaml: is a Pod"):
        read_manifest(str(path))
