"""Reference of the presets: what each is, the provenance of its parameters, and the options, from the code."""

from dataclasses import fields

from tranche.cli.workload_options import workload_options
from tranche.simulation.workload import jsac, presets
from tranche.simulation.workload.jsac_options import JsacOptions
from tranche_codegen.reference.markdown_table import table

_HEAD = """\
# Presets of the simulator

Generated from the code by `make generate`; do not edit. A preset is a named setting: its sites, nodes and links are
drawn from the seed, and `--arrivals LOG.csv` draws jobs for it that arrive as those of a log do.

The presets `jsac-…` follow Wang, Zhou, Jiao, Zhang, Li, Li, *Preemptive Scheduling for Distributed Machine Learning
Jobs in Edge-Cloud Networks*, IEEE JSAC 40(8), 2022, doi 10.1109/JSAC.2022.3180772. Its evaluation section was not
available to us: the models, the trace, the number of jobs, the baselines, the testbed and all figures and tables of it
are unknown.
"""

_CLUSTERS = {
    "jsac-cloud": (
        "the paper's setting: {edges} edge sites of {workers} workers of one GPU, and a cloud without limit",
        "P2, C2",
    ),
    "jsac-edge": ("the same edge sites and links for the same seed, without the cloud", "I"),
    "jsac-cloud10": ("the same with a cloud of {cloud} workers of one GPU", "I"),
    "edge-cloud": (
        "measured parts: twelve sites of two or three nodes of 1, 2 or 4 GPUs, a cloud of {nodes} nodes of {gpus} V100,"
        " with the [network model](../explanation/network-model.md)",
        "I",
    ),
}

_MARKS = """\
## Where each value comes from

| mark | meaning |
|---|---|
| P | printed in the paper and read there |
| P2 | second hand: a reader who had the paper quotes it |
| C2 | from a third party's partial re-implementation: it may be the paper's choice or that person's own |
| I | ours, because the sources leave it open |
"""

_NOTES = """\
*Data from outside* (`--delay outside`, the form of the paper): the data of a job are at no site. The time Δ to bring
one chunk is drawn for every job and site, so no site is free, not even the nearest; communication takes 2q/b of the job
wherever its parameter server is. *Data at home* (`--delay home`): the data of a job are at one edge site, where Δ = 0,
and Δ depends only on the pair of sites. A free site exists, so this is another problem for a scheduler: results of the
two cannot be compared.

Chunks of drawn jobs have {terabytes:.2f} TB, and their q and b are scaled alike, so that uploads and communication take
as long over the simulated links as in the setting; the bytes themselves mean nothing. Each job has an owner of its own,
so that fair shares are among jobs.

## Options

The options are for the presets `jsac-…`; those of jobs also go with `edge-cloud` and with `--cluster FILE` if
`--arrivals` draws jobs. An option changes no draw that it does not concern: the first six of nine edge sites
are those of `--edges 6`.
Values that differ from the default are part of the result and of the command that repeats it.
"""

_EXAMPLES = """\
```sh
.venv/bin/tranche compare --preset jsac-cloud --arrivals LOG.csv --jobs 60 --policies fifo,chunk-faithful --loads 0.9
.venv/bin/tranche simulate --preset jsac-edge --arrivals LOG.csv --jobs 60 --policy chunk --delay outside --draw uniform
.venv/bin/tranche simulate --preset jsac-cloud10 --arrivals LOG.csv --jobs 60 --edges 6 --ps-hosts 2 --policy chunk
```
"""


def presets_page() -> str:
    """Return the text of docs/reference/presets.md."""
    low, high = presets.JSAC_WORKERS
    words = {
        "edges": jsac.JSAC_EDGES,
        "workers": f"{low} or {high}",
        "cloud": presets.JSAC_CLOUD_WORKERS,
        "nodes": presets.CLOUD_NODES,
        "gpus": presets.CLOUD_GPUS,
    }
    delays = JsacOptions()
    clusters = (
        (f"`{name}`", content.format(**words), mark, f"`{delays.delay_of(name)}`")
        for name, (content, mark) in ((name, _CLUSTERS[name]) for name in presets.PRESETS)
    )
    old = ", ".join(
        f"`{old}` is an earlier name of `{new}`: it still works, and a warning says so"
        for old, new in presets.DEPRECATED.items()
    )
    return "\n".join(
        [
            _HEAD,
            table(("preset", "content", "mark", "data by default"), clusters),
            f"{old}. Only `jsac-cloud` is the paper's setting.\n",
            _MARKS,
            table(("parameter", "value", "mark"), _parameters()),
            _NOTES.format(terabytes=jsac.CHUNK_BYTES / 1e12),
            table(("option", "meaning"), _options()),
            _EXAMPLES,
        ]
    )


def _parameters() -> list[tuple[str, str, str]]:
    """Return one row per parameter: name, value, mark."""
    jobs, edge, cloud = jsac, jsac.EDGE_HOURS, jsac.CLOUD_HOURS
    seconds, gradient, bandwidth = jobs.COMPUTE_SECONDS, jobs.GRADIENT_BYTES, jobs.BANDWIDTH
    low, high = presets.JSAC_WORKERS
    cpus, memory = (f"{a} to {b}" for a, b in (jobs.CPUS, jobs.MEMORY_GB))
    return [
        ("edge sites", f"{jobs.JSAC_EDGES} of {low} or {high} workers", "C2"),
        (
            "parameter servers that an edge site can host",
            "1 or 2 there; no limit here unless `--ps-hosts` is given",
            "C2, I",
        ),
        ("cloud", "without limit", "P2"),
        (
            "limited cloud of `jsac-cloud10`",
            f"{presets.JSAC_CLOUD_WORKERS} workers; {presets.JSAC_CLOUD_PS_HOSTS} parameter servers with `--ps-hosts`",
            "C2",
        ),
        ("parameter servers of a job", "1", "P"),
        ("epochs E", f"{jobs.EPOCHS[0]} to {jobs.EPOCHS[1]}", "P2"),
        ("mini-batches in a chunk B", f"{jobs.BATCHES}", "P2"),
        ("time of a mini-batch m", f"{seconds[0]:g} to {seconds[1]:g} s (0.001 to 0.05 slots of an hour)", "P2"),
        (
            "fixed rest of a mini-batch G",
            f"{1000 * jobs.FIXED_SECONDS[0]:g} to {1000 * jobs.FIXED_SECONDS[1]:g} ms",
            "C2",
        ),
        ("gradients q", f"{gradient[0] / 1e6:g} to {gradient[1] / 1e6:g} MB", "P2"),
        ("bandwidth of a worker b", f"{bandwidth[0] / 1e6:g} Mbit/s to {bandwidth[1] / 1e9:g} Gbit/s", "P2"),
        ("chunks D by data set", ", ".join(f"{name} {count}" for name, count in jobs.CHUNKS.items()), "C2"),
        ("Δ of one chunk to an edge site", f"{edge[0]:g} to {edge[1]:g} h, the nearest site included", "P2"),
        ("Δ of one chunk to the cloud", f"{cloud[0]:g} to {cloud[1]:g} h", "P2"),
        ("Δ = 0 at the site of the data (`--delay home`)", "one edge site, drawn by job", "I"),
        ("worker", f"1 GPU, {cpus} CPU, {memory} GB", "C2"),
        ("parameter server", f"no GPU, {cpus} CPU, {memory} GB", "C2"),
        (
            "speeds of workers",
            "heterogeneous there, how is unknown (P2); equal here, or U[0.5, 1.5] with `--speeds mixed`",
            "I",
        ),
        (
            "distributions within the ranges",
            "uniform there (C2); here m, q and b log-uniform unless `--draw uniform`, others uniform",
            "I",
        ),
        ("arrivals", "the pattern of any log, stretched to the load", "I"),
        ("load without `--load`", "0.9", "I"),
    ]


def _options() -> list[tuple[str, str]]:
    """Return the options with the help texts of the command line."""
    names = {field.name for field in fields(JsacOptions)} | {"delay_scale", "chunk_scale", "jobs", "arrivals"}

    @workload_options
    def command() -> None:
        """Do nothing."""

    options = reversed(command.__click_params__)  # type: ignore[attr-defined]
    return [(f"`{option.opts[0]}`", str(option.help)) for option in options if option.name in names]
