"""Generator of the data files of the simulator's presets from data/profiles: figures only, with their sources.

``--check`` writes nothing and exits with 1 if a file in the package differs.
"""

import argparse
import csv
import gzip
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from math import asin, cos, radians, sin, sqrt
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
PROFILES = ROOT / "data/profiles"
DATA = ROOT / "scheduler/tranche/simulation/data"
KINDS = ("K80", "P100", "V100")
REFERENCE = "V100"
EDGE_SITES = 12
REGION = "Sydney"
Table = tuple[str, Sequence[Sequence[str]]]
"""Comment and rows, the first one the header."""


def gpu_speeds(profiles: Path) -> Table:
    """Return the median over the models of their speed on one GPU, alone, relative to the reference kind."""
    measured = json.loads(gzip.decompress((profiles / "gavel_throughputs.json.gz").read_bytes()))
    alone = {
        kind: {model: row["null"] for model, row in measured[kind.lower()].items() if model.endswith(", 1)")}
        for kind in KINDS
    }
    models = [model for model in alone[REFERENCE] if all(alone[kind].get(model) for kind in KINDS)]
    speeds = {kind: median(alone[kind][m] / alone[REFERENCE][m] for m in models) for kind in KINDS}
    comment = (
        "Source: stanford-futuredata/gavel, measured throughputs, MIT licence. Derived by\n"
        f"benchmarks/derive_presets.py: median over {len(models)} models and batch sizes of their steps per second on\n"
        f"one GPU, alone, over those of {REFERENCE}."
    )
    return comment, [("kind", "speed"), *((kind, f"{speed:.3f}") for kind, speed in speeds.items())]


def edge_sites(profiles: Path) -> Table:
    """Select sites farthest-first: the site nearest the middle of all, then always the one farthest from the others."""
    with (profiles / "eua_melbourne_sites.csv").open(newline="") as text:
        rows = sorted(csv.DictReader(text), key=lambda row: int(row["SITE_ID"]))
    places = {row["SITE_ID"]: (float(row["LATITUDE"]), float(row["LONGITUDE"])) for row in rows}
    middle = tuple(sum(place[axis] for place in places.values()) / len(places) for axis in (0, 1))
    chosen = [min(places, key=lambda site: _kilometres(places[site], middle))]
    while len(chosen) < EDGE_SITES:
        chosen.append(max(places, key=lambda site: min(_kilometres(places[site], places[c]) for c in chosen)))
    comment = (
        "Source: swinedge/eua-dataset, base stations in the centre of Melbourne, MIT licence. Derived by\n"
        f"benchmarks/derive_presets.py: {EDGE_SITES} of {len(places)}, the one nearest their middle, then always\n"
        "the one farthest from those chosen."
    )
    return comment, [("site_id", "latitude", "longitude"), *((s, *(f"{x:.5f}" for x in places[s])) for s in chosen)]


def wan_links(profiles: Path) -> Table:
    """Return all measurements from the region nearest to the edge sites."""
    with (profiles / "aws_wan_latency_bandwidth.csv").open(newline="") as text:
        rows = [(row["src"], row["dst"], row["latency_ms"], row["bandwidth_gbps"]) for row in csv.DictReader(text)]
    ends = [(dst if src == REGION else src, *rest) for src, dst, *rest in rows if REGION in (src, dst)]
    comment = (
        "Source: DS3Lab/DT-FM, latency and bandwidth measured between AWS regions, MIT licence. Derived by\n"
        f"benchmarks/derive_presets.py: the links of {REGION}, the measured region nearest to Melbourne."
    )
    return comment, [("region", "latency_ms", "bandwidth_gbps"), *sorted(ends)]


def model_families(profiles: Path) -> Table:
    """Return the time of a mini-batch of each family of models that was measured on one node and on several."""
    measured = json.loads(gzip.decompress((profiles / "gavel_throughputs.json.gz").read_bytes()))
    together, apart = (measured[kind] for kind in (REFERENCE.lower(), f"{REFERENCE.lower()}_unconsolidated"))
    rows = []
    for entry in together:
        name, gpus = entry[2:-1].rsplit("', ", 1)
        seconds = [int(gpus) / kind[entry]["null"] for kind in (together, apart) if kind.get(entry, {}).get("null")]
        if int(gpus) > 1 and len(seconds) == 2:
            rows.append((name, gpus, *(f"{value:.6g}" for value in seconds)))
    comment = (
        "Source: stanford-futuredata/gavel, measured throughputs, MIT licence. Derived by\n"
        f"benchmarks/derive_presets.py: seconds of a mini-batch of all workers on {REFERENCE}: workers over their\n"
        "steps per second together, with GPUs on one node (step_seconds) and on several (spread_step_seconds)."
    )
    return comment, [("model", "gpus", "step_seconds", "spread_step_seconds"), *sorted(rows)]


FILES: dict[str, Callable[[Path], Table]] = {
    "gpu_speeds.csv": gpu_speeds,
    "edge_sites.csv": edge_sites,
    "wan_links.csv": wan_links,
    "model_families.csv": model_families,
}


def _kilometres(place: Sequence[float], other_place: Sequence[float]) -> float:
    latitudes, longitudes = (radians(place[0]), radians(other_place[0])), (radians(place[1]), radians(other_place[1]))
    half = sin((latitudes[1] - latitudes[0]) / 2) ** 2
    half += cos(latitudes[0]) * cos(latitudes[1]) * sin((longitudes[1] - longitudes[0]) / 2) ** 2
    return 2 * 6371.0 * asin(sqrt(half))


def _text(table: Table) -> str:
    comment, rows = table
    lines: Iterable[str] = [*(f"# {line}" for line in comment.splitlines()), *(",".join(row) for row in rows)]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profiles", type=Path, default=PROFILES)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    differing = []
    for name, derive in FILES.items():
        path, text = DATA / name, _text(derive(options.profiles))
        if options.check and (not path.is_file() or path.read_text() != text):
            differing.append(name)
        elif not options.check:
            path.write_text(text)
    if differing:
        sys.exit(f"{', '.join(differing)} in {DATA} differ: run python benchmarks/derive_presets.py")


if __name__ == "__main__":
    main()
