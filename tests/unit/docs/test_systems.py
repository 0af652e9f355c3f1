"""Figures that pages repeat from the tables of the published systems."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from support.doc_pages import ROOT

SYSTEMS = ROOT / "docs/reference/systems"
REFERENCE = "srpt-pool"
"""Policy that cannot be deployed."""


def text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def column(table: str, number: int) -> dict[str, float]:
    """Return the figures of a column by the policy in the first one."""
    rows = [[cell.strip(" `") for cell in line.strip("| ").split("|")] for line in table.splitlines() if "|" in line]
    return {row[0]: float(row[number]) for row in rows if re.fullmatch(r"[\d.]+", row[number])}


def all_policies() -> dict[str, float]:
    """Return the average JCT of all policies on one cluster, in hours."""
    return column(text(SYSTEMS / "index.md").partition("| policy | average JCT, h |")[2].partition("\n\n")[0], 1)


def without_network() -> dict[str, float]:
    """Return the average JCT of some of them without the network model, in hours."""
    return column(text(ROOT / "docs/explanation/network-model.md").partition("| policy | off |")[2], 1)


def test_comparators_have_the_figures_of_all_policies() -> None:
    page, known = text(SYSTEMS / "comparators.md"), all_policies()
    found = re.findall(r"(?m)^\| `(\w+)` .*average JCT ([\d.]+) h(?:; ([\d.]+) h, ([\d.]+) h)?", page)
    assert len(found) == 4
    for policy, own, *beside in found:
        assert float(own) == known[policy]
        assert [float(one) for one in beside if one] in ([], [known["chunk"], known["fifo-skip"]])


@pytest.mark.parametrize("figures", [all_policies, without_network], ids=lambda one: one.__name__)
def test_first_choice_has_the_least_jct_of_its_table(figures: Callable[[], dict[str, float]]) -> None:
    known = figures()
    best = min((policy for policy in known if policy != REFERENCE), key=known.__getitem__)
    page = text(ROOT / "docs/how-to/choose-a-policy.md").partition("## Which policy for which cluster?")[2]
    link = "index.md#all-policies" if figures is all_policies else "#what-shared-uplinks-cost"
    (row,) = [line for line in page.splitlines() if link in line]
    assert row.split("|")[2].strip() == f"`{best}`"


def unread() -> list[str]:
    """Return the pages of systems of which neither the full text nor code was read."""
    rows = re.findall(r"(?m)^\| \[[^|]+\]\(([\w-]+\.md)\) \|[^|]+\| ([^|]+) \|", text(SYSTEMS / "index.md"))
    return [page for page, read in rows if not re.search("full text|code", read)]


@pytest.mark.parametrize("page", unread())
def test_page_of_an_unread_system_says_so(page: str) -> None:
    assert re.search(r"reconstructed|^# [^\n]*-like", text(SYSTEMS / page))


def test_only_oasis_and_lwf_have_pages_of_read_systems() -> None:
    others = {page.name for page in SYSTEMS.glob("*.md")} - set(unread())
    assert others == {"index.md", "oasis.md", "lwf.md"}


def test_cost_of_the_network_model_is_that_of_the_results() -> None:
    table = text(ROOT / "docs/reference/results/simulator.md").partition("<!-- table network-cost -->")[2]
    rows = re.findall(r"(?m)^(srsf|first-fit|lwf) +off: 1\.00 +on: ([\d.]+) +on, no contention: ([\d.]+)", table)
    cost = {policy: (float(on), float(on) - float(without)) for policy, on, without in reversed(rows)}
    page = " ".join(text(SYSTEMS / "lwf.md").split())
    match = re.search(
        r"measured ([\d.]+) times the run without it under `srsf`, ([\d.]+) times under `first-fit` and "
        r"([\d.]+) times under `lwf` .*? Contention alone is up to ([\d.]+) of that",
        page,
    )
    assert match is not None
    contention = max(alone for _, alone in cost.values())
    expected = [cost["srsf"][0], cost["first-fit"][0], cost["lwf"][0], contention]
    assert [float(one) for one in match.groups()] == pytest.approx(expected)


def utilities() -> dict[int, dict[str, tuple[float, str]]]:
    """Return the total utility and its ratio to that of `oasis`, by number of jobs and policy."""
    heads, _, *rows = text(SYSTEMS / "oasis.md").partition("| jobs | oasis |")[2].partition("\n\n")[0].splitlines()
    policies = ["oasis", *(head.partition(":")[0].strip() for head in heads.strip("|").split("|"))]
    found: dict[int, dict[str, tuple[float, str]]] = {}
    for row in rows:
        cells = re.findall(r"([\d,]+) \(× ([\d.]+)\)", row)
        figures = [(float(one.replace(",", "")), ratio) for one, ratio in cells]
        pairs = list(zip(policies, figures, strict=True))
        found[int(row.split("|")[1])] = dict(reversed(pairs))  # the first column of a policy has its defaults
    return found


def ratio(jobs: int, policy: str) -> str:
    return utilities()[jobs][policy][1]


def test_comparators_of_oasis_have_the_ratios_of_its_table() -> None:
    sections = re.findall(
        r"(?m)^\| (?:`(\w+)`)?[^\n]*? \| (\d+) jobs[^|]*\| `oasis` \| × ([\d.]+)", text(SYSTEMS / "comparators.md")
    )
    policies = ["dorm", "dorm", "rrh", "rrh"]
    assert [one for _, _, one in sections] == [
        ratio(int(jobs), policy) for policy, (_, jobs, _) in zip(policies, sections, strict=True)
    ]


def test_claim_of_oasis_has_the_ratios_of_its_table() -> None:
    (row,) = [line for line in text(SYSTEMS / "oasis.md").splitlines() if line.startswith("| highest total utility")]
    found = re.findall(r"× ([\d.]+)", row)
    policies = ("rrh", "dorm", "drf", "fifo")
    by_jobs = [ratio(jobs, policy) for policy in policies for jobs in (100, 200, 400)]
    assert found == by_jobs


@pytest.mark.parametrize(
    ("page", "pattern", "policy", "base"),
    [
        ("index.md", r"at 100 jobs, (\d+) % more total utility than `fifo`", "oasis", "fifo"),
        ("index.md", r"(\d+) % less than `rrh`", "oasis", "rrh"),
        ("pd-ors-like.md", r"and `fifo` by (\d+) %", "pd-ors-like", "fifo"),
        ("pd-ors-like.md", r"not against `rrh`, which has (\d+) % more", "rrh", "pd-ors-like"),
    ],
)
def test_repeated_difference_of_utilities_is_that_of_the_table(page: str, pattern: str, policy: str, base: str) -> None:
    (shown,) = re.findall(pattern, text(SYSTEMS / page))
    known = utilities()[100]
    assert int(shown) == round(100 * abs(known[policy][0] / known[base][0] - 1))
