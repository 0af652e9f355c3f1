"""Workload and cluster options of ``simulate`` and ``compare``, and the recipe that they define."""

import stat
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

import click

from tranche.cli.errors import InputError, input_errors
from tranche.cli.option_types import EXPORT_GPU, FACTOR, SECONDS, SHARE, SIGMA, SIZE, Finite
from tranche.estimate.transfer_start import SHARED, START_RULES
from tranche.simulation.workload.jsac_options import (
    CLUSTER_OPTIONS,
    LARGEST_SCALE,
    MAX_EDGES,
    MAX_EPOCHS,
    MAX_PS_HOSTS,
    MAX_WORKERS_PER_EDGE,
    Delay,
    Draw,
    JsacOptions,
    Speeds,
)

if TYPE_CHECKING:
    from tranche.kube.api.names import GpuResources
    from tranche.replay.export import Export
    from tranche.simulation.recipe import Cluster, Log, Recipe, Workload
    from tranche.simulation.workload.utility_draw import UtilityDraw

Command = TypeVar("Command", bound=Callable[..., Any])
FILE = click.Path(exists=True, dir_okay=False, readable=True, path_type=Path)
DRAWN_LOAD = 0.9
"""Default load of drawn jobs."""
DRAWN_JOBS = 400
"""Default number of drawn jobs, if the log has that many arrivals."""
MAX_JOBS, MAX_CHUNKS = 1_000_000, 1000


@dataclass(frozen=True, slots=True)
class WorkloadOptions:
    """Values of the options, by their names on the command line."""

    trace: Path | None
    gpus: int | None
    cluster: Path | None
    preset: str | None
    arrivals: Path | None
    jobs: int | None
    chunk_scale: float | None
    draw: Draw | None
    delay: Delay | None
    speeds: Speeds | None
    ps_hosts: int | None
    edges: int | None
    workers_per_edge: int | None
    epochs: int | None
    delay_scale: float | None
    edge_delay_scale: float | None
    cloud_delay_scale: float | None
    bandwidth_scale: float | None
    gradient_scale: float | None
    mode: Literal["gang", "elastic"] | None
    layout: str
    on_error: Literal["stop", "skip"]
    limit: int | None
    chunks_per_gpu: int | None
    chunk_size: float | None
    gradient_size: float | None
    resample: bool
    restart_seconds: float
    period: float
    estimate_sigma: float
    speed_sigma: float
    link_sigma: float
    unsized: float
    utility: "UtilityDraw"
    speed_factor: float
    network: bool | None
    transfers: str
    member_gpus: int | None
    gpu_resources: "GpuResources"

    def given(self) -> tuple[str, ...]:
        """Return the names of the options of the JSAC presets that are set."""
        return tuple(name for name in _JSAC_OPTION_NAMES if getattr(self, name) is not None)

    def drawn(self) -> JsacOptions:
        """Combine the options of drawn jobs."""
        common_scale = 1.0 if self.delay_scale is None else self.delay_scale
        values = {name: getattr(self, name) for name in self.given() if name != "delay_scale"}
        for name in ("edge_delay_scale", "cloud_delay_scale"):
            values[name] = common_scale * values.get(name, 1.0)
        drawn = JsacOptions(**values)
        return replace(drawn, delay=drawn.delay_of(self.preset or ""))

    @classmethod
    def pop_from(cls, values: dict[str, Any]) -> "WorkloadOptions":
        """Return the options, and remove them from the values that click passes to a command."""
        return cls(**{field.name: values.pop(field.name) for field in fields(cls)})


@dataclass(frozen=True, slots=True)
class Setting:
    """Setting that the options define."""

    recipe: "Recipe"
    trace: str
    """File with the jobs or arrivals."""
    cluster: str
    mode: str
    """Mode of the jobs: gang, elastic, or recorded (each job of a cluster's history as it ran)."""
    load: float | None
    """Default load; None: arrivals as logged."""
    options: str
    """Description of the options of a preset and of drawn jobs; empty if nothing is drawn."""
    network: str
    """Whether the network model is on, with its capacities by topology level and a start rule of transfers."""
    skipped: tuple[str, ...]
    """Rows that could not be read, with line numbers."""


def workload_options(command: Command) -> Command:
    """Add the workload options to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


_SCALE = Finite(0, LARGEST_SCALE)
_JSAC_OPTIONS = (
    click.option(
        "--draw",
        type=click.Choice(get_args(Draw)),
        help="Distribution of m, q and b of drawn jobs [default: log-uniform].",
    ),
    click.option(
        "--delay",
        type=click.Choice(get_args(Delay)),
        help="Origin of the data of drawn jobs [default: outside with jsac-cloud, else home].",
    ),
    click.option(
        "--speeds", type=click.Choice(get_args(Speeds)), help="Speeds of the workers of a jsac preset [default: equal]."
    ),
    click.option(
        "--ps-hosts",
        type=click.IntRange(1, MAX_PS_HOSTS),
        help="Parameter servers of drawn jobs that an edge site of a jsac preset can host [default: no limit].",
    ),
    click.option(
        "--edges", type=click.IntRange(1, MAX_EDGES), help="Number of edge sites of a jsac preset [default: 9]."
    ),
    click.option(
        "--workers-per-edge",
        type=click.IntRange(1, MAX_WORKERS_PER_EDGE),
        help="Workers per edge site of a jsac preset [default: 3 or 4, random].",
    ),
    click.option(
        "--epochs", type=click.IntRange(1, MAX_EPOCHS), help="Epochs of all drawn jobs [default: 20 to 60, random]."
    ),
    click.option("--delay-scale", type=_SCALE, help="Factor on Δ of drawn jobs, to edge sites and clouds."),
    click.option("--edge-delay-scale", type=_SCALE, help="Factor on Δ of drawn jobs, to edge sites only."),
    click.option("--cloud-delay-scale", type=_SCALE, help="Factor on Δ of drawn jobs, to clouds only."),
    click.option("--bandwidth-scale", type=Finite(0.001, LARGEST_SCALE), help="Factor on b of drawn jobs."),
    click.option("--gradient-scale", type=_SCALE, help="Factor on q of drawn jobs."),
)
_JSAC_OPTION_NAMES = (
    "draw",
    "delay",
    "speeds",
    "ps_hosts",
    "edges",
    "workers_per_edge",
    "epochs",
    "delay_scale",
    "edge_delay_scale",
    "cloud_delay_scale",
    "bandwidth_scale",
    "gradient_scale",
)
"""Names of the options that define a `JsacOptions`."""

_OPTIONS = (
    click.argument("trace", required=False, type=FILE),
    click.option("--gpus", type=click.IntRange(1), help="Cluster: one pool of this number of GPUs."),
    click.option("--cluster", type=FILE, help="Cluster: YAML file with sites, nodes, GPU kinds, links and failures."),
    click.option("--preset", metavar="NAME", help="Cluster: a named preset, such as jsac-cloud."),
    click.option(
        "--arrivals",
        type=FILE,
        help="With --preset or --cluster: draw random jobs with the arrival times of this log.",
    ),
    click.option(
        "--jobs", type=click.IntRange(1, MAX_JOBS), help="With --arrivals: number of jobs to draw [default: 400]."
    ),
    click.option(
        "--chunk-scale", type=Finite(0.001, 100), help="With --arrivals: factor on the chunks per job (27, 60 or 115)."
    ),
    *_JSAC_OPTIONS,
    click.option("--mode", type=click.Choice(["gang", "elastic"]), help="How the log's jobs run [default: gang]."),
    click.option("--layout", default="auto", show_default=True, metavar="NAME", help="Layout of the log's columns."),
    click.option(
        "--on-error",
        default="stop",
        show_default=True,
        type=click.Choice(["stop", "skip"]),
        help="Action for a row that cannot be read; skipped rows are reported.",
    ),
    click.option("--limit", type=click.IntRange(1), help="Simulate only the first N jobs."),
    click.option(
        "--chunks-per-gpu", type=click.IntRange(1, MAX_CHUNKS), help="Chunks per GPU of an elastic job [default: 1]."
    ),
    click.option(
        "--chunk-size",
        type=SIZE,
        help="Bytes per chunk of an elastic job; a random edge site holds the job's data.",
    ),
    click.option(
        "--gradient-size",
        type=SIZE,
        help="Bytes that a worker of an elastic job sends and receives for each mini-batch of one second.",
    ),
    click.option(
        "--resample", is_flag=True, help="Resample the log: draw the same number of jobs in blocks of neighbors."
    ),
    click.option(
        "--restart-seconds",
        default=0,
        show_default=True,
        type=SECONDS,
        help="ρ: restart cost in seconds, added at every pod start.",
    ),
    click.option(
        "--period", default=0, show_default=True, type=SECONDS, help="Seconds between decisions; 0: at every event."
    ),
    click.option(
        "--estimate-sigma",
        default=0,
        show_default=True,
        type=SIGMA,
        help="Log-normal σ of the error of estimated durations.",
    ),
    click.option("--speed-sigma", default=0, show_default=True, type=SIGMA, help="Log-normal σ of worker speeds."),
    click.option(
        "--link-sigma", default=0, show_default=True, type=SIGMA, help="Log-normal σ of upload times on links."
    ),
    click.option(
        "--unsized", default=0, show_default=True, type=SHARE, help="Share of jobs without a declared duration."
    ),
    click.option(
        "--utility",
        default="none",
        show_default=True,
        type=click.Choice(("none", "hours", "relative")),
        help="Draw utilities of completion as in OASiS, with slots of an hour or of each job's shortest duration.",
    ),
    click.option(
        "--speed-factor",
        default=1,
        show_default=True,
        type=FACTOR,
        help="1 + ε: factor on the speed of all workers; arrivals and uploads stay the same.",
    ),
    click.option(
        "--network/--no-network",
        default=None,
        help="Network model: gangs train models with measured communication, over links by topology level, and all "
        "that crosses a link shares it [default: as the cluster file says; on for edge-cloud; else off].",
    ),
    click.option(
        "--transfers",
        default=SHARED,
        show_default=True,
        type=click.Choice((SHARED, *START_RULES)),
        help="With the network model: when the gradients of a gang may be sent. shared: at once, slowed down by the "
        "expected traffic of others; else each transfer of gangs is simulated: at-once, srsf-1 (no other on its "
        "links), srsf-2 (at most one other), adadual (one other that has much more left). Takes much longer.",
    ),
    click.option(
        "--member-gpus", type=click.IntRange(1), help="Most GPUs of a member of a gang [default: those of a node]."
    ),
    EXPORT_GPU,
)


def setting(options: WorkloadOptions) -> Setting:
    """Build the setting from the options.

    Raises:
        InputError: options are mutually exclusive, or a file cannot be used.
    """
    from tranche.simulation.cluster_spec import network_text
    from tranche.simulation.recipe import Recipe, with_network

    with input_errors():
        export = _export(options)
        if options.gpu_resources and export is None:
            raise InputError("--gpu-resource applies to the export of a cluster, not to a job log")
        _contradictions(options, bare=not (export and export.nodes))
        cluster, cluster_name = _cluster(options, export)
        workload, skipped, mode, load = _workload(options, export)
    recipe = Recipe(
        workload,
        cluster,
        restart_seconds=options.restart_seconds,
        period_seconds=options.period,
        speed_sigma=options.speed_sigma,
        estimate_sigma=options.estimate_sigma,
        link_sigma=options.link_sigma,
        unsized=options.unsized,
        utility=options.utility,
        speed_factor=options.speed_factor,
        network=options.network,
        transfers=options.transfers,
    )
    source = options.trace or options.arrivals
    network = network_text(with_network(cluster.spec(0), on=options.network), options.transfers)
    if options.transfers != SHARED and network == "off":
        raise InputError("--transfers applies to the network model: add --network")
    return Setting(recipe, str(source), cluster_name, mode, load, _text(options), network, skipped)


def _text(options: WorkloadOptions) -> str:
    """Describe how jobs are drawn: the options with the largest effect always, the others if given."""
    if options.arrivals is None:
        values = {name: getattr(options, name) for name in options.given()}
    else:
        drawn = options.drawn()
        values = {"delay": drawn.delay, "draw": drawn.draw}
        values |= {name: getattr(drawn, name) for name in drawn.changed()}
        values |= {} if options.chunk_scale is None else {"chunk_scale": options.chunk_scale}
    return ", ".join(f"{name.replace('_', ' ')} {_shown(value)}" for name, value in values.items())


def _shown(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _export(options: WorkloadOptions) -> "Export | None":
    """Read the input as the export of a cluster; None if it is a job log."""
    if options.trace is None or options.layout != "auto" or not _is_json(options.trace):
        return None
    from tranche.replay.export import scan_export  # the objects of Kubernetes, which a log does not need

    export = scan_export(options.trace, options.gpu_resources)
    if export.problems and options.on_error == "stop":
        others = f" (and {len(export.problems) - 1:,} more)" if len(export.problems) > 1 else ""
        raise InputError(f"{export.problems[0]}{others}, or leave it out with --on-error skip")
    return export


def _contradictions(options: WorkloadOptions, *, bare: bool) -> None:
    """Raise for the first combination of options that is not allowed."""
    clusters = [f"--{name}" for name in ("gpus", "cluster", "preset") if getattr(options, name) is not None]
    drawn = [f"--{name.replace('_', '-')}" for name in ("jobs", "chunk_scale") if getattr(options, name) is not None]
    jsac = (options.preset or "").startswith("jsac")
    refused = [
        (not clusters and bare, "no cluster is given: add --gpus N, --cluster FILE or --preset NAME"),
        (len(clusters) > 1, f"{' and '.join(clusters)} are mutually exclusive: give one cluster"),
        (
            options.arrivals is None and options.trace is None,
            "no job log is given: add TRACE, or --preset and --arrivals",
        ),
        (
            options.arrivals is not None and options.trace is not None,
            "TRACE and --arrivals are mutually exclusive: jobs are from a log or drawn",
        ),
        (
            options.arrivals is not None and options.preset is None and options.cluster is None,
            "--arrivals requires a cluster: add --preset or --cluster",
        ),
        (bool(drawn) and options.arrivals is None, f"{_apply_to(drawn)} drawn jobs: add --arrivals"),
        (
            bool(concerns_jobs := _flags(options, of_cluster=False)) and options.arrivals is None,
            f"{concerns_jobs} drawn jobs: add --preset and --arrivals",
        ),
        (
            bool(concerns_cluster := _flags(options, of_cluster=True)) and not jsac,
            f"{concerns_cluster} the jsac presets: add --preset jsac-cloud or another jsac preset",
        ),
        (options.arrivals is not None and options.mode == "gang", "drawn jobs are elastic: remove --mode gang"),
        (
            options.arrivals is not None and options.chunks_per_gpu is not None,
            "--chunks-per-gpu applies to jobs of a log, not to drawn jobs: use --chunk-scale",
        ),
        (
            options.arrivals is not None and options.resample,
            "--resample applies to jobs of a log; drawn jobs are random already",
        ),
        (options.arrivals is not None and options.limit is not None, "--limit applies to jobs of a log: use --jobs"),
        (
            options.chunks_per_gpu is not None and options.arrivals is None and options.mode != "elastic",
            "--chunks-per-gpu applies to elastic jobs: add --mode elastic",
        ),
        (
            bool(options.chunk_size or options.gradient_size) and options.mode != "elastic",
            "--chunk-size and --gradient-size apply to elastic jobs of a log: add --mode elastic",
        ),
        (
            options.member_gpus is not None and (options.mode == "elastic" or options.arrivals is not None),
            "--member-gpus applies to gangs of a log, not to elastic jobs",
        ),
        (
            options.transfers != SHARED and (options.mode == "elastic" or options.arrivals is not None),
            f"--transfers {options.transfers} applies to gangs, not to elastic jobs",
        ),
    ]
    for wrong, sentence in refused:
        if wrong:
            raise InputError(sentence)


def _flags(options: WorkloadOptions, *, of_cluster: bool) -> str:
    """Begin the error message for given preset options that apply to the cluster, or to drawn jobs."""
    alone = CLUSTER_OPTIONS - {"ps_hosts"}
    named = [name for name in options.given() if (name in alone) == of_cluster or (name == "ps_hosts" and of_cluster)]
    return _apply_to([f"--{name.replace('_', '-')}" for name in named]) if named else ""


def _apply_to(flags: list[str]) -> str:
    return f"{' and '.join(flags)} appl{'y' if len(flags) > 1 else 'ies'} to"


def _cluster(options: WorkloadOptions, export: "Export | None") -> "tuple[Cluster, str]":
    from tranche.simulation.cluster_spec import ClusterSpec, pool, read_cluster
    from tranche.simulation.recipe import FixedCluster, PresetCluster
    from tranche.simulation.workload.presets import DEPRECATED, PRESETS

    if options.preset is not None:
        name = DEPRECATED.get(options.preset, options.preset)
        if name not in PRESETS:
            raise InputError(f"unknown preset {options.preset!r}; choose one of: {', '.join(sorted(PRESETS))}")
        if name != options.preset:
            click.echo(f"Warning: preset {options.preset} is now called {name}: use --preset {name}", err=True)
        return PresetCluster(name, options.drawn()), name
    if options.cluster is not None:
        return FixedCluster(read_cluster(options.cluster)), str(options.cluster)
    if options.gpus is None and export is not None:
        name = "the node of the export" if len(export.nodes) == 1 else f"the {len(export.nodes)} nodes of the export"
        return FixedCluster(ClusterSpec(name, export.nodes, export.sites)), name
    return FixedCluster(pool(options.gpus or 0)), f"{options.gpus} GPUs"


def _workload(
    options: WorkloadOptions, export: "Export | None"
) -> "tuple[Workload, tuple[str, ...], str, float | None]":
    """Build the workload; returns it with unreadable rows, mode and default load."""
    from tranche.simulation.recipe import DrawnJobs, LoggedJobs

    if options.arrivals is not None:
        log, skipped = _log(options.arrivals, options)
        count = options.jobs or min(DRAWN_JOBS, len(log.rows()))
        drawn = DrawnJobs(log, count, options.chunk_scale or 1.0, options=options.drawn())
        return drawn, skipped, "elastic", DRAWN_LOAD
    trace = options.trace or Path()
    if export is not None:
        return _recorded(export, options)
    log, skipped = _log(trace, options)
    mode = options.mode or "gang"
    workload = LoggedJobs(
        log,
        mode,
        options.chunks_per_gpu or 1,
        options.limit,
        options.resample,
        options.chunk_size or 0.0,
        8 * (options.gradient_size or 0.0),
        options.member_gpus,
    )
    return workload, skipped, mode, None


def _recorded(export: "Export", options: WorkloadOptions) -> "tuple[Workload, tuple[str, ...], str, float | None]":
    """Build the workload from the export of a cluster."""
    from tranche.simulation.recipe import GivenJobs

    for name in ("mode", "chunks_per_gpu", "resample", "member_gpus"):
        if getattr(options, name):
            complaint = f"--{name.replace('_', '-')} applies to the jobs of a log"
            raise InputError(f"{complaint}; {options.trace} is the recorded history of a cluster")
    return GivenJobs(export.jobs, options.limit), export.problems, "recorded", None


def _log(path: Path, options: WorkloadOptions) -> "tuple[Log, tuple[str, ...]]":
    from tranche.simulation.job_log import LAYOUTS, read_trace
    from tranche.simulation.recipe import FileLog, RowsLog

    if options.layout not in ("auto", *LAYOUTS):
        layouts = ", ".join(dict.fromkeys(("auto", *LAYOUTS)))
        raise InputError(f"unknown layout {options.layout!r}; choose one of: {layouts}")
    log: Log
    if _is_regular(path):
        log = FileLog.at(path, options.layout, options.on_error)
        trace = log.read()
    else:
        trace = read_trace(path, layout=options.layout, on_error=options.on_error)
        log = RowsLog(trace.rows)
    if not trace.rows:
        raise InputError(f"{path}: no usable rows" + (f"; first: {trace.problems[0]}" if trace.problems else ""))
    return log, trace.problems


def _is_regular(path: Path) -> bool:
    return stat.S_ISREG(path.stat().st_mode)


def _is_json(path: Path) -> bool:
    """Return whether the content starts as JSON; a pipe is not read for this check."""
    if not _is_regular(path):
        return False
    with path.open("rb") as file:
        return file.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"[")
