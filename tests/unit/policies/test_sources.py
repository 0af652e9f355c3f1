"""Sources of policies: none cites a section that we have not read."""

import inspect
import re
import sys
from importlib import import_module
from pathlib import Path

import pytest

from tranche.policies import POLICIES

ROOT = Path(__file__).resolve().parents[3]
MARK = re.compile(r"\[(P|P2|C|C2|D|R|I)\]")
PUBLICATION = re.compile(r"\b(19|20)\d\d\b")
PART = re.compile(r"\b(sections?|sec\.|fig(ure|\.)|chapter|table|alg(orithms?|\.))\s*[IVX\d]", re.IGNORECASE)
CUSTOMARY = {
    "fifo": "the order of arrival has no inventor",
    "fifo-skip": "neither has passing over what does not fit",
}
"""Policies whose source names no mark, and why."""
READ = {
    "chunk-faithful": "Alg. 1-5 and Table I were read as pictures of the pages",
    "round-robin": "OASiS was read in full",
    "oasis": "OASiS was read in full",
}
"""Policies that may name a part of a paper, and why."""
PRINTED = READ | {
    "dorm": "one sentence of OASiS",
    "fifo": "the baseline of OASiS",
    "lwf": "the abstract",
    "rrh": "one sentence of OASiS",
    "selector": "the abstracts",
}
"""Policies that may mark something as printed and read, and where it was read."""
RECONSTRUCTED = {
    "rrh": "RRH-like",
    "dorm": "Dorm-like",
    "optimus": "Optimus-like",
    "themis": "Themis-like",
    "pd-ors-like": "PD-ORS-like",
    "dally-like": "Dally-like",
    "selector": "ASET-like",
}
LIKE = {
    "tranche.estimate.iteration.bandwidth_share": "SaSP-like",
    "tranche.estimate.iteration.batch_size": "LOFT-like",
    "tranche.estimate.iteration.batch_search": "LOFT-like",
    "tranche.estimate.layer_schedule": "DeepProphet-like",
}
"""Modules of systems of which only an abstract was read, with the name that each gives itself."""


@pytest.mark.parametrize("name", sorted(POLICIES.keys() - CUSTOMARY.keys()))
def test_source_says_by_a_mark_how_it_is_known(name: str) -> None:
    assert MARK.search(POLICIES[name].source)


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_docstring_that_cites_a_publication_carries_a_mark(name: str) -> None:
    docstring = inspect.getdoc(sys.modules[type(POLICIES[name]).__module__]) or ""
    assert MARK.search(docstring) or not PUBLICATION.search(docstring)


@pytest.mark.parametrize("name", sorted(POLICIES.keys() - READ.keys()))
def test_source_names_no_part_of_an_unread_paper(name: str) -> None:
    docstring = inspect.getdoc(sys.modules[type(POLICIES[name]).__module__]) or ""
    for text in (POLICIES[name].source, docstring):
        assert not PART.search(text), text


@pytest.mark.parametrize("name", sorted(POLICIES.keys() - PRINTED.keys()))
def test_unread_paper_is_not_marked_as_read(name: str) -> None:
    docstring = inspect.getdoc(sys.modules[type(POLICIES[name]).__module__]) or ""
    assert "[P" not in POLICIES[name].source + docstring


@pytest.mark.parametrize("name", sorted(RECONSTRUCTED))
def test_reconstructed_policy_says_so_in_its_source(name: str) -> None:
    source = POLICIES[name].source
    assert source.startswith(RECONSTRUCTED[name])
    assert MARK.search(source)


@pytest.mark.parametrize(
    ("name", "said"), [("las", "classes that double [I]"), ("tiresias", "without promotion by default")]
)
def test_source_says_what_differs_from_the_publication(name: str, said: str) -> None:
    assert said in POLICIES[name].source


@pytest.mark.parametrize(("module", "name"), LIKE.items())
def test_module_of_an_unread_system_says_so(module: str, name: str) -> None:
    docstring = inspect.getdoc(import_module(module)) or ""
    assert name in docstring
    assert re.search(r"\[(R|I)\]", docstring)
    assert "faithful" not in docstring
    assert not PART.search(docstring)


@pytest.mark.parametrize("name", sorted(CUSTOMARY.keys() | READ.keys()))
def test_exceptions_are_policies_of_the_registry(name: str) -> None:
    assert name in POLICIES


def test_pages_that_policies_name_exist() -> None:
    named = set()
    for policy in POLICIES.values():
        docstring = inspect.getdoc(sys.modules[type(policy).__module__]) or ""
        assert "shared/" not in docstring
        named |= set(re.findall(r"[\w/.-]+\.md\b", docstring))
    assert any(name.endswith("policy-study.md") for name in named)
    assert {name for name in named if not (ROOT / name).is_file()} == set()
