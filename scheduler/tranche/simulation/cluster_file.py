"""Schema of a cluster's YAML file, and a reader that is safe for untrusted files."""

from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import Annotated, Any, Self

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails

from tranche.model import Tier
from tranche.model.quantity import parse_bytes, parse_duration, parse_millicores
from tranche.model.topology import WAN_LEVEL, Topology
from tranche.simulation.cluster_limit import MAX_GPUS_PER_NODE, MAX_NODES, ClusterError

MAX_BYTES = 10 * 2**20
MAX_VALUES = 1_000_000
"""Maximum number of values in a file, with aliases counted at every place where they appear."""
LATEST = 1e11
"""Latest time of a failure, in seconds: that of a submission in a job log (`job_log.row.MAX_SECONDS`)."""
MAX_DEPTH = 50
"""Maximum nesting; libyaml's loader recurses without a limit of its own and would end the process."""


def _quantity(parse: Callable[[str | float], int], least: int, unit: str) -> BeforeValidator:
    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ValueError("must be a quantity such as 64Mi, 500M, 1500m or 2")
        number = parse(value)
        if number < least:
            raise ValueError(f"{value} must be at least {least} {unit}")
        return number

    return BeforeValidator(read)


def _seconds(value: object) -> float:
    if not isinstance(value, str):
        raise ValueError("must be a duration such as 20ms, 90s or 1h30m")
    return parse_duration(value)


Name = Annotated[str, Field(max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
Seconds = Annotated[float, BeforeValidator(_seconds)]
Speed = Annotated[float, Field(ge=1e-6, le=1e6)]


class Section(BaseModel):
    """Base class: camelCase in the file, unknown fields are errors."""

    model_config = ConfigDict(alias_generator=to_camel, frozen=True, extra="forbid", allow_inf_nan=False)


class LinkSection(Section):
    """Path to another site, or, with the site's own name, its internal network."""

    to: Name
    bandwidth: Annotated[int, _quantity(parse_bytes, 1, "bit/s")]
    """Bandwidth in bit/s."""
    latency: Seconds = 0.0


class NodeSection(Section):
    """Group of equal nodes."""

    count: int = Field(default=1, ge=1, le=MAX_NODES)
    gpus: int = Field(default=0, ge=0, le=MAX_GPUS_PER_NODE)
    """GPUs of each node."""
    gpu: Annotated[str, Field(min_length=1, max_length=63)] | None = None
    """GPU kind, one of `gpuKinds`."""
    cpu: Annotated[int, _quantity(parse_millicores, 0, "millicores")] = 10**9
    """CPU in millicores; by default it is never exhausted."""
    memory: Annotated[int, _quantity(parse_bytes, 0, "bytes")] = 2**60
    """Memory in bytes; by default it is never exhausted."""
    pods: int = Field(default=10**6, ge=1, le=10**9)
    labels: dict[str, str] = {}


class SiteSection(Section):
    """Site of the cluster."""

    name: Name
    tier: Tier = Tier.EDGE
    unlimited: bool = False
    node_startup: Seconds = 0.0
    """Time that an unlimited site takes to create a node for a pod."""
    links: list[LinkSection] = []
    nodes: list[NodeSection] = []

    @model_validator(mode="after")
    def _capacity_is_either_counted_or_unlimited(self) -> Self:
        if self.unlimited and self.nodes:
            raise ValueError("an unlimited site makes nodes on demand: leave out nodes, or unlimited")
        return self


class FailureSection(Section):
    """Temporary loss of a node."""

    node: str
    at: float = Field(ge=0, le=LATEST)
    until: float | None = Field(default=None, le=LATEST)
    """Time at which the node returns; None: never."""

    @model_validator(mode="after")
    def _ends_after_it_begins(self) -> Self:
        if self.until is not None and self.until <= self.at:
            raise ValueError(f"until ({self.until:g}) must be after at ({self.at:g})")
        return self


class LevelSection(Section):
    """Topology level with its links."""

    label: Annotated[str, Field(min_length=1, max_length=316)]
    """Label key of the level; for the last one, `WAN_LEVEL`."""
    bandwidth: Annotated[int, _quantity(parse_bytes, 1, "bit/s")]
    """Capacity of a link between nodes that share this level and no narrower one, in bit/s."""


class NetworkSection(Section):
    """Network model: links between the members of gangs."""

    levels: list[LevelSection] = Field(min_length=1, max_length=10)
    """Topology levels, narrowest first."""

    @model_validator(mode="after")
    def _levels_end_with_the_wan(self) -> Self:
        if self.levels[-1].label != WAN_LEVEL:
            raise ValueError(f"the last level must have the label {WAN_LEVEL}")
        Topology(tuple(level.label for level in self.levels[:-1]))
        return self


class ClusterFile(Section):
    """Root of the file."""

    gpu_kinds: dict[Annotated[str, Field(min_length=1, max_length=63)], Speed] = {}
    """Speed of each kind of GPU relative to the kind that the durations were measured on."""
    sites: list[SiteSection] = Field(min_length=1)
    failures: list[FailureSection] = []
    network: NetworkSection | None = None
    """Network model; None: communication between the members of gangs takes no time."""


_SECTIONS: Mapping[tuple[str, ...], type[Section]] = {
    (): ClusterFile,
    ("sites",): SiteSection,
    ("sites", "links"): LinkSection,
    ("sites", "nodes"): NodeSection,
    ("failures",): FailureSection,
    ("network",): NetworkSection,
    ("network", "levels"): LevelSection,
}


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Safe loader that rejects duplicate keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[object] = set()
        for key, _ in node.value:
            if key.value in seen and isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(None, None, f"{key.value!r} appears twice", key.start_mark)
            if isinstance(key, yaml.ScalarNode):
                seen.add(key.value)
        mapping: dict[Hashable, Any] = super().construct_mapping(node, deep)
        return mapping


def read_file(path: Path) -> ClusterFile:
    """Read and check a cluster file, field by field.

    Raises:
        ClusterError: The file is invalid; the text is one line.
    """
    document = _load(path)
    if not isinstance(document, dict):
        raise ClusterError(f"{shown(path)}: must be a mapping with the key sites")
    try:
        return ClusterFile.model_validate(document)
    except ValidationError as error:
        raise ClusterError(f"{shown(path)}: {_describe(error.errors(include_url=False)[0])}") from None


def shown(path: Path) -> str:
    """Return the path in a form that fits into a message of one line."""
    text = str(path)
    return text if text.isprintable() else ascii(text)


def _load(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise ClusterError(f"{shown(path)}: is larger than 10 MB: describe equal nodes by count")
        text = content.decode()
        _check_depth(text, path)
        document = yaml.load(text, _Loader)  # noqa: S506 - derived from the safe loader
    except ClusterError:
        raise
    except OSError as error:
        raise ClusterError(f"{shown(path)}: {error.strerror or error}") from None
    except yaml.YAMLError as error:
        raise ClusterError(f"{shown(path)}: is not valid YAML: {_one_line(str(error))}") from None
    except UnicodeDecodeError:
        raise ClusterError(f"{shown(path)}: is not text in UTF-8") from None
    except ValueError as error:  # a name with a NUL, a number of thousands of digits, a date that does not exist
        raise ClusterError(f"{shown(path)}: {_one_line(str(error))}") from None
    _check_size(document, path)
    return document


def _check_depth(text: str, path: Path) -> None:
    depth = 0
    for event in yaml.parse(text, _Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH:
            raise ClusterError(f"{shown(path)}: is nested more than {MAX_DEPTH} levels deep")


def _check_size(document: object, path: Path) -> None:
    """Limit the number of values, because aliases can make a short text large, or endless."""
    pending, values = [document], 0
    while pending:
        value = pending.pop()
        values += 1
        if values + len(pending) > MAX_VALUES:
            raise ClusterError(f"{shown(path)}: has more than {MAX_VALUES:,} values: describe equal nodes by count")
        if isinstance(value, dict):
            pending += value.values()
        elif isinstance(value, list | set | tuple):
            pending += value


def _describe(error: ErrorDetails) -> str:
    """Return one line with the field and the allowed values."""
    place = [part for part in error["loc"] if part != "[key]"]
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).lstrip(".")
    message = error["msg"].removeprefix("Value error, ")
    section = _SECTIONS.get(tuple(str(part) for part in place[:-1] if isinstance(part, str)))
    if error["type"] == "extra_forbidden" and section is not None:
        allowed = ", ".join(sorted(field.alias or name for name, field in section.model_fields.items()))
        message = f"unknown field: choose among {allowed}"
    elif error["type"] == "string_pattern_mismatch":
        message = "must be lower case letters, digits and '-', and neither begin nor end with '-'"
    return _one_line(f"{where}: {message}" if where else message)


def _one_line(text: str) -> str:
    text = " ".join(text.split())
    text = text if text.isprintable() else ascii(text)
    return text if len(text) <= 300 else text[:300] + "..."
