"""Required node affinity: the plan's short list of nodes, combined with what the user's template asks for.

kube-scheduler looks at the listed nodes only if *every* term has a ``matchFields metadata.name`` expression with one
value. Terms are alternatives; so each planned node is combined with each term of the user.
"""

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Term = dict[str, Any]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def node_terms(nodes: Iterable[str]) -> list[Term]:
    """One term a node, in the given order, each node once."""
    return [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]} for node in dict.fromkeys(nodes)
    ]


def label_terms(labels: Mapping[str, str]) -> list[Term]:
    """One term: all labels of a site whose nodes do not exist yet."""
    return [
        {
            "matchExpressions": [
                {"key": key, "operator": "In", "values": [value]} for key, value in sorted(labels.items())
            ]
        }
    ]


def narrow(spec: dict[str, Any], terms: Sequence[Term]) -> None:
    """Restrict the pod spec to nodes that match one of the terms and what the spec already requires, in place.

    Terms of the user without any expression match no node by definition, so they are dropped; if that leaves none, the
    user's pod can run nowhere and its affinity stays as it is.
    """
    affinity = spec["affinity"] = spec.get("affinity") or {}
    node_affinity = affinity["nodeAffinity"] = affinity.get("nodeAffinity") or {}
    required = node_affinity.get(REQUIRED)
    if required is None:
        combined = [copy.deepcopy(term) for term in terms]
    else:
        own = [term for term in required.get("nodeSelectorTerms") or [] if any(term.values())]
        if not own:
            return
        combined = [_both(term, other) for term in terms for other in own]
    node_affinity[REQUIRED] = {"nodeSelectorTerms": combined}


def _both(term: Term, other: Term) -> Term:
    """A term that asks for everything that either asks for."""
    merged = {
        kind: copy.deepcopy([*(other.get(kind) or []), *(term.get(kind) or [])])
        for kind in ("matchFields", "matchExpressions")
    }
    return {kind: expressions for kind, expressions in merged.items() if expressions}
