"""Collection of the tests, and the order in which their modules run."""

import gc
from collections.abc import Generator
from itertools import groupby

import pytest

from support.module_order import in_order


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
