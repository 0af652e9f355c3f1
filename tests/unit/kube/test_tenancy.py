"""Limits of namespaces in the mounted ConfigMap."""

import logging
from pathlib import Path

import pytest

from tranche.kube.convert.tenancy import TenancyDirectory, to_tenancy
from tranche.model.tenancy import ClaimLimits, Tenancy

DATA = {
    "maxWeight": "10",
    "highestPriorityClass": "tranche-normal",
    "allowNever": "false",
    "maxWeight.research": "1000",
    "allowNever.ops": "true",
    "allowAtChunkEnd.lab": "true",
    "maxRestartSeconds": "600",
    "maxRestartSeconds.ops": "3600",
}


def mount(directory: Path, data: dict[str, str]) -> None:
    """Write files as the kubelet mounts a ConfigMap: through a link that it replaces."""
    version = directory / f"..{len(list(directory.iterdir()))}"
    version.mkdir()
    for path in directory.iterdir():
        if path.is_symlink():
            path.unlink()
    for key, value in data.items():
        (version / key).write_text(value)
    (directory / "..data").symlink_to(version.name)
    for key in data:
        (directory / key).symlink_to(f"..data/{key}")


def test_namespaces_inherit_what_they_do_not_set() -> None:
    defaults = ClaimLimits(10, "tranche-normal", allow_never=False, max_restart_seconds=600)
    assert to_tenancy(DATA) == Tenancy(
        defaults,
        {
            "lab": ClaimLimits(10, "tranche-normal", False, 600, allow_at_chunk_end=True),
            "ops": ClaimLimits(10, "tranche-normal", allow_never=True, max_restart_seconds=3600),
            "research": ClaimLimits(1000, "tranche-normal", allow_never=False, max_restart_seconds=600),
        },
    )


def test_without_limits_nothing_is_limited() -> None:
    assert to_tenancy({}) == to_tenancy({"maxGraceSeconds": "600"}) == Tenancy()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("maxWeight", "many"),
        ("maxWeight", "nan"),
        ("maxWeight.lab", "0"),
        ("maxWeight", "1000001"),
        ("highestPriorityClass", "system-node-critical"),
        ("allowNever.lab", "yes"),
        ("allowAtChunkEnd", "sometimes"),
        ("maxWieght", "1"),
        ("maxGraceSeconds.lab", "10m"),
        ("maxRestartSeconds.lab", "10m"),
    ],
)
def test_limit_that_makes_no_sense_is_refused_by_name(key: str, value: str) -> None:
    with pytest.raises(ValueError, match=f"^{key}: "):
        to_tenancy({key: value})


def test_changed_mount_is_read_again(tmp_path: Path) -> None:
    mount(tmp_path, {"maxWeight": "10"})
    directory = TenancyDirectory(tmp_path)
    assert directory.current.defaults.max_weight == 10
    assert not directory.reload()
    mount(tmp_path, {"maxWeight": "20"})
    assert directory.reload()
    assert directory.current.defaults.max_weight == 20


def test_unreadable_limit_is_strict_in_a_planner_that_starts(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bad = {"maxWeight.lab": "ten", "allowNever": "maybe", "allowAtChunkEnd.lab": "", "maxRestartSeconds": "1h"}
    unknown = {"maxWieght": "5", "maxGraceSeconds.lab": "1h"}
    mount(tmp_path, {"maxWeight": "20", "highestPriorityClass.lab": "high", **bad, **unknown})
    with caplog.at_level(logging.ERROR):
        directory = TenancyDirectory(tmp_path)
    assert {key for key in (*bad, *unknown) if f"{key}: " in caplog.text} == {*bad, *unknown}
    assert directory.current == Tenancy(
        ClaimLimits(20, allow_never=False, max_restart_seconds=600),
        {"lab": ClaimLimits(1, "tranche-normal", allow_never=False, max_restart_seconds=600)},
    )
    mount(tmp_path, {"maxWeight": "20"})
    assert directory.reload()
    assert directory.current == Tenancy(ClaimLimits(20))


def test_unreadable_change_leaves_the_limits_in_force(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    mount(tmp_path, {"maxWeight": "10"})
    directory = TenancyDirectory(tmp_path)
    mount(tmp_path, {"maxWeight": "ten"})
    with caplog.at_level(logging.ERROR):
        assert not directory.reload()
        assert not directory.reload()
    assert directory.current.defaults.max_weight == 10
    assert caplog.text.count("maxWeight: 'ten'") == 1
