"""The order of the modules when several processes share them: those that mostly wait lie between those that compute."""

from itertools import groupby
from pathlib import Path

import pytest

_WAITING = ("chaos", "integration", "testcluster", "e2e")
_HERE = Path(__file__).parent
_SPREAD = 0.8
"""Share of the computing modules between which the waiting ones lie: the last ones fill up all processes."""


def _waits(tests: list[pytest.Item]) -> bool:
    """Return whether a module runs on a control plane."""
    return tests[0].path.relative_to(_HERE).parts[0] in _WAITING


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spread the modules on a control plane evenly; keep the order within both kinds, and within a module."""
    modules = [list(tests) for _, tests in groupby(items, key=lambda item: item.path)]
    waiting = [tests for tests in modules if _waits(tests)]
    computing = [tests for tests in modules if not _waits(tests)]
    places = [(place * _SPREAD * len(computing) / len(waiting), tests) for place, tests in enumerate(waiting)]
    places += [(place + 0.5, tests) for place, tests in enumerate(computing)]
    items[:] = [item for _, tests in sorted(places, key=lambda one: one[0]) for item in tests]
