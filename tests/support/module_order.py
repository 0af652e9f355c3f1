"""Order of the test modules for several processes: those that mostly wait lie between those that compute."""

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

Module = TypeVar("Module", bound=tuple[Path, object])
TESTS = Path(__file__).resolve().parents[1]
WAITING = ("chaos", "integration", "testcluster", "e2e")
"""Folders of the modules that run on a control plane."""
LONGEST = (
    "chaos/test_rounds.py",
    "integration/whole/test_preemption.py",
    "integration/docs/test_pages.py",
    "integration/client/test_plugin.py",
    "integration/whole/test_lost_nodes.py",
    "integration/whole/test_two_schedulers.py",
    "integration/whole/test_slot_tables.py",
    "integration/web/test_browser.py",
    "integration/whole/test_whole_path.py",
)
"""Waiting modules that take longest. They come first: one of them at the end would run alone."""
SPREAD = 0.8
"""Share of the computing modules between which the waiting ones lie: the last ones fill up all processes."""


def in_order(modules: Sequence[Module]) -> list[Module]:
    """Spread the waiting modules evenly among the others, the longest first; else keep the order.

    Args:
        modules: Path and tests of each module.
    """
    names = {path: path.relative_to(TESTS) for path, _ in modules}
    waiting = [module for module in modules if names[module[0]].parts[0] in WAITING]
    computing = [module for module in modules if names[module[0]].parts[0] not in WAITING]
    waiting.sort(key=lambda module: _rank(names[module[0]].as_posix()))
    places = [(place * SPREAD * len(computing) / len(waiting), module) for place, module in enumerate(waiting)]
    places += [(place + 0.5, module) for place, module in enumerate(computing)]
    return [module for _, module in sorted(places, key=lambda one: one[0])]


def _rank(name: str) -> int:
    return LONGEST.index(name) if name in LONGEST else len(LONGEST)
