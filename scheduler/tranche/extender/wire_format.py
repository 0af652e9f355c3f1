"""Wire format of the extender: Go types without JSON tags, hence UpperCamelCase names; lower case is accepted too."""

import re
from typing import TypeVar

import msgspec

from tranche.kube.api.core_types import Pod

T = TypeVar("T")


class MalformedError(ValueError):
    """The request body is not in the format of kube-scheduler; the message names the problem."""


class Names(msgspec.Struct, frozen=True):
    """Request of filter or prioritize."""

    pod: Pod
    nodes: list[str]


class MetaPod(msgspec.Struct, frozen=True):
    """Victim of a preemption, by UID."""

    uid: str = msgspec.field(name="UID", default="")


class MetaVictims(msgspec.Struct, frozen=True, rename="pascal"):
    """Victims on one node."""

    pods: list[MetaPod] = []
    pdb_violations: int = msgspec.field(name="NumPDBViolations", default=0)


class Candidates(msgspec.Struct, frozen=True):
    """Request of preempt: victims by node."""

    pod: Pod
    victims: dict[str, MetaVictims]


class FilterResult(msgspec.Struct, frozen=True, rename="pascal"):
    """Response of filter. Every input node is in exactly one of both fields.

    Rejected nodes are no preemption candidates.
    """

    node_names: list[str] = []
    failed_and_unresolvable_nodes: dict[str, str] = {}
    error: str = ""


class HostPriority(msgspec.Struct, frozen=True, gc=False, rename="pascal"):
    """Score of one node, from 0 to 10."""

    host: str
    score: int


class Binding(msgspec.Struct, frozen=True):
    """Request of bind."""

    pod_name: str
    pod_namespace: str
    pod_uid: str
    node: str


class BindResult(msgspec.Struct, frozen=True, rename="pascal"):
    """Response of bind; an empty error means success."""

    error: str = ""


class PreemptResult(msgspec.Struct, frozen=True, rename="pascal"):
    """Response of preempt: the remaining candidate nodes with their victims."""

    node_name_to_meta_victims: dict[str, MetaVictims]


class _Metadata(msgspec.Struct):
    uid: str = ""


_Fields = dict[str, msgspec.Raw]
_FIELDS = msgspec.json.Decoder(_Fields)
_POD = msgspec.json.Decoder(Pod)
_NAMES = msgspec.json.Decoder(list[str] | None)
_TABLE = msgspec.json.Decoder(dict[str, _Fields | None] | None)
_PODS = msgspec.json.Decoder(list[_Fields | None] | None)
_COUNT = msgspec.json.Decoder(int)
_TEXT = msgspec.json.Decoder(str)
_METADATA = msgspec.json.Decoder(_Metadata)
_BINDING = ("PodName", "PodNamespace", "PodUID", "Node")
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
_NULL = msgspec.Raw(b"null")


def decode_names(body: bytes) -> Names:
    """Decode the body of filter or prioritize.

    Raises:
        MalformedError: the body is invalid.
    """
    fields = _lower(_read(_FIELDS, body, "the body"))
    names = _read(_NAMES, fields.get("nodenames", _NULL), "NodeNames")
    if names is None:
        has_nodes = fields.get("nodes", _NULL) != _NULL
        raise MalformedError(
            "Nodes instead of NodeNames: set nodeCacheCapable" if has_nodes else "NodeNames is missing"
        )
    return Names(_pod(fields), names)


def decode_candidates(body: bytes) -> Candidates:
    """Decode the body of preempt, with complete victims or only their UIDs.

    Raises:
        MalformedError: the body is invalid.
    """
    fields = _lower(_read(_FIELDS, body, "the body"))
    victims: dict[str, MetaVictims] = {}
    for name in ("nodenametovictims", "nodenametometavictims"):
        for node, node_victims in (_read(_TABLE, fields.get(name, _NULL), name) or {}).items():
            victims[node] = _meta(_lower(node_victims or {}))
    return Candidates(_pod(fields), victims)


def decode_binding(body: bytes) -> Binding:
    """Decode the body of bind.

    Raises:
        MalformedError: the body is invalid, or a name in it is not a valid object name (it is used in a URL path).
    """
    fields = _lower(_read(_FIELDS, body, "the body"))
    names = [_read(_TEXT, fields.get(name.lower(), _NULL), name) for name in _BINDING]
    for name, value in zip(_BINDING, names, strict=True):
        if not _NAME.fullmatch(value):
            raise MalformedError(f"{name}: {value[:80]!r} is not a name")
    return Binding(*names)


def _pod(fields: _Fields) -> Pod:
    raw = fields.get("pod", _NULL)
    if raw == _NULL:
        raise MalformedError("Pod is missing")
    return _read(_POD, raw, "Pod")


def _meta(victims: _Fields) -> MetaVictims:
    pods = [_uid(_lower(pod or {})) for pod in _read(_PODS, victims.get("pods", _NULL), "Pods") or []]
    count = victims.get("numpdbviolations")
    return MetaVictims([MetaPod(uid) for uid in pods], _read(_COUNT, count, "NumPDBViolations") if count else 0)


def _uid(pod: _Fields) -> str:
    if "uid" in pod:
        return _read(_TEXT, pod["uid"], "UID")
    return _read(_METADATA, pod["metadata"], "metadata").uid if "metadata" in pod else ""


def _lower(fields: _Fields) -> _Fields:
    return {name.lower(): value for name, value in fields.items()}


def _read(decoder: msgspec.json.Decoder[T], raw: bytes | msgspec.Raw, name: str) -> T:
    try:
        return decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedError(f"{name}: {error}") from error
