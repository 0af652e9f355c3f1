"""The order of the tests when several processes share them: what mostly waits comes first, what computes fills up."""

from pathlib import Path

import pytest

_WAITING = ("chaos", "integration", "testcluster", "e2e")
_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def rank(item: pytest.Item) -> int:
        folder = item.path.relative_to(_HERE).parts[0]
        return _WAITING.index(folder) if folder in _WAITING else len(_WAITING)

    items.sort(key=rank)  # stable: within a folder as written
