"""Node affinity: the nodes or the site of a planned pod, with the terms of the user's template.

kube-scheduler considers only the listed nodes if *every* term has a ``matchFields metadata.name`` expression with one
value. Terms are alternatives, so each planned node is combined with each term of the user.
"""

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Term = dict[str, Any]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def node_terms(nodes: Iterable[str]) -> list[Term]:
    """Return one term for each node, in the given order, without duplicates."""
    return [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]} for node in dict.fromkeys(nodes)
    ]


def label_terms(labels: Mapping[str, str], avoided: str = "") -> list[Term]:
    """Return one term that requires all labels and, if a node is to be avoided, another node.

    It is for a site whose nodes may not exist yet.
    """
    term: Term = {
        "matchExpressions": [{"key": key, "operator": "In", "values": [value]} for key, value in sorted(labels.items())]
    }
    if avoided:
        term["matchFields"] = [{"key": "metadata.name", "operator": "NotIn", "values": [avoided]}]
    return [term]


def restrict(spec: dict[str, Any], terms: Sequence[Term]) -> None:
    """Restrict the pod spec, in place, to nodes that match one of the terms and the spec's own requirements.

    Terms of the user without expressions match no node by definition, so they are dropped. If none is left, the user's
    pod cannot run on any node, and its affinity stays unchanged.
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
        combined = [_with_expressions_of(term, other) for term in terms for other in own]
    node_affinity[REQUIRED] = {"nodeSelectorTerms": combined}


def prefer(spec: dict[str, Any], node: str) -> None:
    """Let the pod prefer a node to its others, in place, for the time in which the extender is away."""
    affinity = spec["affinity"] = spec.get("affinity") or {}
    node_affinity = affinity["nodeAffinity"] = affinity.get("nodeAffinity") or {}
    (preference,) = node_terms([node])
    node_affinity[PREFERRED] = [*(node_affinity.get(PREFERRED) or []), {"weight": 100, "preference": preference}]


def _with_expressions_of(term: Term, other: Term) -> Term:
    """Return a term that requires the expressions of both terms."""
    merged = {
        kind: copy.deepcopy([*(other.get(kind) or []), *(term.get(kind) or [])])
        for kind in ("matchFields", "matchExpressions")
    }
    return {kind: expressions for kind, expressions in merged.items() if expressions}
