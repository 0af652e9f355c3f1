"""The tests that type the commands of README and docs, and the reasons why no test types the others.

A command is a line of a block, or code in a sentence that begins with one of `TOOLS`. On the pages of `TYPED` a test
takes all of them from the page as it is; an omitted command has its reason in `NOT_HERE`, or is only a `MENTION`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from support.doc_pages import ROOT, blocks, pages, words, words_in_code

TOOLS = ("kubectl", "helm", "kind", "curl", "docker", "pip")
"""Programs whose commands in a sentence a reader would type."""

TUTORIAL = "tests/integration/docs/test_tutorial.py"
INSTALLING = "tests/integration/docs/test_installing.py"
PILOT = "tests/integration/docs/test_pilot.py"
PAGES = "tests/integration/docs/test_pages.py"
SIMULATIONS = "tests/unit/docs/test_simulations.py"
CONTAINERS = "tests/e2e/test_tutorial.py"
ADD_A_POLICY = "tests/unit/docs/test_add_a_policy.py"
TRAINING_CODE = "tests/unit/docs/test_training_code.py"
BATCH_SIZE = "tests/unit/cli/test_batch_size.py"
_TYPED_ON_A_RELEASE = (
    "README.md",
    "docs/how-to/sites.md",
    "docs/how-to/choose-a-policy.md",
    "docs/how-to/kubectl-plugin.md",
    "docs/how-to/accounting.md",
    "docs/how-to/migrating.md",
    "docs/how-to/web-page.md",
    "docs/how-to/shadow-mode.md",
    "docs/how-to/runbook.md",
    "docs/how-to/recovering.md",
    "docs/explanation/multi-tenancy.md",
    "docs/reference/site.md",
    "docs/reference/trainingjob.md",
)
TYPED = {
    "docs/tutorial/first-job.md": TUTORIAL,
    "docs/tutorial/real-containers.md": CONTAINERS,
    "docs/how-to/installing.md": INSTALLING,
    "docs/how-to/pilot.md": PILOT,
    "docs/reference/presets.md": SIMULATIONS,
    "docs/how-to/add-a-policy.md": ADD_A_POLICY,
    "docs/how-to/training-code.md": TRAINING_CODE,
    "docs/reference/systems/batopt.md": BATCH_SIZE,
    **dict.fromkeys(_TYPED_ON_A_RELEASE, PAGES),
}
"""By page below the top folder."""
SIMULATED = re.compile(r"\.venv/bin/tranche (simulate|compare|policies)|tranche (policies|replay)")
"""Commands on some pages of `TYPED` that are typed without a cluster, with a log of a few jobs."""

NOT_HERE = {
    r"make (demo|test|kind-demo|containers)( .*)?": "the demo, all tests, Docker and nodes: each has tests of its own",
    r"(digest=\$\()?docker (build|buildx|push) .*": "there is no Docker here",
    r"make native|PYTHONPATH=build/native .*": "minutes; benchmarks/simulator_speed.py runs both",
    r"kind delete cluster --name tranche": "there is no kind cluster without Docker",
    r"pip install --dry-run .*": "asks PyPI for wheels of another architecture; the page says when it was typed",
    r"pip install \.": "fetches packages; tests/unit/packaging looks at the wheel",
    r"kubectl delete pod POD .*": "takes a pod whose containers have ended from a node that does not answer",
    r"kubectl patch pod POD .*": "takes the finalizer off a pod of a tranche that is gone for good",
    r"kubectl delete validatingadmissionpolicybindings .*": "integration/manifests/test_admission_policies.py types it",
    r"(\.venv/bin/)?python benchmarks/.*": "minutes to hours",
    r"tranche (compare|simulate) .*data/traces/.*": "minutes to hours, on logs of other people",
}
"""Commands of blocks that cannot run in a test, as patterns; tests/unit/docs checks that they exist."""

MENTIONS = {
    "kubectl tranche", "kubectl port-forward", "kubectl proxy", "kubectl delete crd", "helm test", "helm rollback",
    "helm install", "helm upgrade", "helm uninstall", "kubectl apply", "kubectl tranche whatif", "kubectl tranche why",
    "kubectl debug", "kubectl delete --cascade=orphan", "docker push", "kubectl tranche plan", "kubectl tranche queue",
    "kubectl tranche usage", "kubectl apply --server-side", "helm template", "docker build --platform linux/arm64",
}  # fmt: skip
"""Commands in sentences that stand for their function."""


@dataclass(frozen=True)
class Typed:
    """Command of a page."""

    page: str
    """Path below the top folder."""
    text: str
    inline: bool = False
    """Whether it is part of a sentence."""

    @property
    def why_not(self) -> str:
        """Reason why no test types it; empty: a test does."""
        return next((why for pattern, why in NOT_HERE.items() if re.fullmatch(pattern, self.text)), "")

    @property
    def typed_by(self) -> str:
        """Test that types it; empty: none."""
        if self.why_not:
            return ""
        test = TYPED.get(self.page, "")
        return SIMULATIONS if test in (PAGES, PILOT) and SIMULATED.match(self.text) else test


def commands(page: Path) -> Iterator[Typed]:
    """Yield all commands of a page: those of its blocks, then those of its sentences that no block has."""
    name = str(page.relative_to(ROOT))
    found = [line for block in blocks(page) for line in block.commands]
    yield from (Typed(name, line) for line in found)
    for text in dict.fromkeys(words_in_code(page)):
        if text.startswith(tuple(f"{tool} " for tool in TOOLS)) and text not in MENTIONS and text not in found:
            yield Typed(name, text, inline=True)


def every_command() -> list[Typed]:
    """Return all commands of README, CHANGELOG and docs."""
    return [one for page in pages() for one in commands(page)]


def typed_by(test: str, page: str) -> list[str]:
    """Return the commands of a page that a test types, in order."""
    return [one.text for one in commands(ROOT / page) if one.typed_by == test]


def simulations() -> list[list[str]]:
    """Return the simple commands that need no cluster, each once."""
    texts = dict.fromkeys(one.text for one in every_command() if one.typed_by == SIMULATIONS)
    return [part for text in texts for part in words(text)]
