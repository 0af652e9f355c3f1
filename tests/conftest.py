"""Collection of the tests, the order in which their modules run, and settings of the property tests."""

import gc
import os
from collections.abc import Generator
from itertools import groupby

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

from support.module_order import in_order

FIXED = "SEED" not in os.environ
"""Whether each run has the same examples; `make fuzz` sets a seed."""

settings.register_profile("tests", derandomize=FIXED, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")  # no example fails because the machine is busy
if FIXED:
    # Hypothesis tries constants of the modules that are loaded, which depend on the tests that run in the same process.
    # There is no setting for it.
    no_constants = Constants()
    providers._get_local_constants = lambda: no_constants


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect the tests without collecting garbage, which took a third of the time, and exempt them from it later.

    Each process collects all tests and keeps them to its end.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the modules for several processes; keep the order within a module."""
    modules = [(path, list(tests)) for path, tests in groupby(items, key=lambda item: item.path)]
    items[:] = [item for _, tests in in_order(modules) for item in tests]
