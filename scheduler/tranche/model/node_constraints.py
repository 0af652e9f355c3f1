"""Constraints on the nodes of a pod: node selector, required node affinity, taints; evaluated as by kube-scheduler."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Operator = Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
_INTEGER = re.compile(r"[+-]?[0-9]{1,64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Taint:
    """Taint of a node."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


@dataclass(frozen=True, slots=True)
class Toleration:
    """Toleration of a pod; an empty key with ``Exists`` tolerates everything, an empty effect every effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        """Return whether a pod with this toleration may run on a node with the taint."""
        if self.effect and self.effect != taint.effect:
            return False
        if not self.key:
            return self.operator == "Exists"
        return self.key == taint.key and (self.operator == "Exists" or self.value == taint.value)


@dataclass(frozen=True, slots=True)
class Requirement:
    """One expression of a node affinity term, over labels or (``field``) over ``metadata.name``."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()
    field: bool = False

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        """Return whether a node of this name with these labels satisfies the expression."""
        value = name if self.field else labels.get(self.key)
        match self.operator:
            case "In":
                return value in self.values
            case "NotIn":
                return value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
        try:
            number, bound = _int64(value or ""), _int64(self.values[0])
        except (ValueError, IndexError):
            return False
        return number > bound if self.operator == "Gt" else number < bound


@dataclass(frozen=True, slots=True)
class Constraints:
    """Requirements of a pod template on a node besides resources."""

    selector: tuple[tuple[str, str], ...] = ()
    affinity: tuple[tuple[Requirement, ...], ...] | None = None
    """Required node affinity: terms are alternatives, the expressions of one term must all hold."""
    tolerations: tuple[Toleration, ...] = ()
    extended: tuple[tuple[str, int], ...] = ()
    """Requests for resources other than `Resources`, by name: the node must offer as much, in use or not."""

    def allow(self, labels: Mapping[str, str]) -> bool:
        """Return whether a node with these labels, and others that are not known yet, may take the pod."""
        if any(labels.get(key, value) != value for key, value in self.selector):
            return False
        return self.affinity is None or any(
            term
            and all(
                requirement.field or requirement.key not in labels or requirement.matches("", labels)
                for requirement in term
            )
            for term in self.affinity
        )

    def objection(self, name: str, labels: Mapping[str, str], taints: tuple[Taint, ...]) -> str | None:
        """Return why a node of this name, labels and taints cannot run the pod, or None if it can.

        The reason is the predicate of a sentence about nodes.
        """
        for key, value in self.selector:
            if labels.get(key) != value:
                return f"do not match the node selector {key}={value}"
        if self.affinity is not None and not any(
            term and all(requirement.matches(name, labels) for requirement in term) for term in self.affinity
        ):
            return "do not match the required node affinity"
        for taint in taints:
            if taint.effect in ("NoSchedule", "NoExecute") and not any(
                toleration.tolerates(taint) for toleration in self.tolerations
            ):
                known = f"have the taint {taint.key}={taint.value}:{taint.effect}, which is not tolerated"
                return known if taint.effect == "NoSchedule" else f"{known} without a time limit"
        return None


def _int64(text: str) -> int:
    """Parse an integer as Kubernetes does, which rejects 1_000 and numbers beyond 64 bits.

    Raises:
        ValueError: the text is not such an integer.
    """
    if _INTEGER.fullmatch(text) is None or not -(2**63) <= (number := int(text)) < 2**63:
        raise ValueError(f"{text!r} is not a 64-bit integer")
    return number
