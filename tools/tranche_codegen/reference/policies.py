"""Reference of the policies: what each does, its source and its options, from the registry."""

import inspect
import sys

from tranche.policies import POLICIES
from tranche.policies.base import Policy
from tranche.policies.option import options_of
from tranche_codegen.reference.markdown_table import table

_HEAD = """\
# Policies

Generated from the registry by `make generate`; do not edit. `[P]` marks what is printed in the source, `[I]` what is
ours. Options are written after the name: `chunk:aging=0:copies=2`. How to choose one:
[choose-a-policy.md](../how-to/choose-a-policy.md). `tranche policies NAME` prints the options of one policy.

Under a policy without priority classes or weights, a job that sets one has the condition `PriorityIgnored`.
"""


def policies_page() -> str:
    """Return the text of docs/reference/policies.md."""
    names = sorted(POLICIES)
    rows = (
        (
            f"[`{name}`](#{name})",
            _yes(holds=POLICIES[name].preempts),
            _yes(holds=POLICIES[name].uses_tiers),
            _yes(holds=POLICIES[name].uses_weights),
            POLICIES[name].used,
            POLICIES[name].source,
        )
        for name in names
    )
    overview = table(("policy", "preempts", "priority classes", "weights", "used", "source"), rows)
    return "\n".join([_HEAD, overview, *(_section(name, POLICIES[name]) for name in names)])


def _yes(*, holds: bool) -> str:
    return "yes" if holds else "no"


def _section(name: str, policy: Policy) -> str:
    module_text = inspect.getdoc(sys.modules[type(policy).__module__]) or ""
    first = (inspect.getdoc(type(policy)) or "").partition("\n")[0]
    text = f"## {name}\n\n{first}\n\n{module_text.replace('``', '`')}\n"
    if options := [(f"`{option.name}`", f"`{option.default}`", option.meaning) for option in options_of(policy)]:
        text += "\n" + table(("option", "default", "meaning"), options)
    return text
