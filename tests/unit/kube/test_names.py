"""Names of pods."""

import pytest

from tranche.kube.api.names import PLANNED_ROLES, ROLE_STAGING, host_name, pod_name, role_of, staging_pod_name


@pytest.mark.parametrize("role", sorted(PLANNED_ROLES))
def test_role_of_a_planned_pod_is_read_from_its_name(role: str) -> None:
    assert role_of("a-ps", pod_name("a-ps", role, 0, 7)) == role


def test_role_of_a_staging_pod_is_read_from_its_name() -> None:
    assert role_of("a-ps", staging_pod_name("a-ps", "edge", 1)) == ROLE_STAGING


def test_pod_name_is_the_host_name_with_the_attempt() -> None:
    assert pod_name("a-ps", "worker", 0, 7) == f"{host_name('a-ps', 'worker', 0)}-7" == "a-ps-worker-0-7"
