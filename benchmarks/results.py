"""The tables and pictures of docs/reference/results, made by the commands that stand above them there.

``python benchmarks/results.py`` runs what is not in ``build/results`` yet (hours of one core in all), then
rewrites each table between its markers; the sentences around them are written by hand. ``--only NAME`` takes some
tables, ``--again`` runs their commands even if their answers are there, ``--list`` names them.
"""

import argparse
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from job_logs import typed_path

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PICTURES = ROOT / "docs/pictures"
KEPT = ROOT / "build/results"
Answer = dict[str, Any]
Row = Sequence[str]

POOLS = {
    "elasticflow_cluster01": 64,
    "elasticflow_cluster02": 128,
    "elasticflow_cluster04": 512,
    "elasticflow_cluster06": 128,
    "helios_venus_vcvGl": 160,
    "philly": 512,
}
GANGS = "fifo,fifo-skip,sjf,srtf,srsf,las,tiresias,gittins"
EF06, HELIOS = (f"{typed_path(name)} --gpus {POOLS[name]}" for name in ("elasticflow_cluster06", "helios_venus_vcvGl"))
DRAWN = f"--preset jsac-edge --arrivals {typed_path('elasticflow_cluster06')}"
JSAC = f"compare {DRAWN}"
DISPATCH = "chunk-faithful,chunk:aging=0,srpt-pool,least-loaded,round-robin,srtf,fifo"
SMALL = f"simulate {DRAWN} --jobs 8 --chunk-scale 0.1 --load 1.1"
SWEPT = "--jobs 40 --seeds 2 --chunk-scale 0.1 --most-jobs 100"
"""Options that are smaller than the defaults of benchmarks/sweeps.py, which take hours."""
RESTARTS = (0, 30, 60, 300)


@dataclass(frozen=True)
class Table:
    """Table of at least one page."""

    name: str
    commands: tuple[str, ...]
    """Arguments of ``tranche``, or a script of this folder with its own arguments."""
    rows: Callable[[Sequence[Answer]], list[Row]] | None
    """Function from the answers to heading and rows; None: the script's output."""
    pictures: tuple[tuple[str, str], ...] = ()
    """Names in the report of the first command, and in docs/pictures."""

    @property
    def pages(self) -> list[Path]:
        """Pages that have the table."""
        opening = f"<!-- table {self.name} -->\n"
        return [page for page in sorted(DOCS.rglob("*.md")) if opening in page.read_text(encoding="utf-8")]


def seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:,.1f}"


def whole(value: float) -> str:
    return f"{value:,.0f}"


def ratio(policy: Answer) -> str:
    """Return the mean ratio over seeds to the baseline, with its confidence interval."""
    mean_ratio = policy["ratios"].get("average_jct_seconds")
    if mean_ratio is None:
        return "–"
    width = mean_ratio["half_width_95"]
    return f"{mean_ratio['mean']:.3f}" + (f" ± {width:.3f}" if width else "")


def to_bound(policy: Answer) -> str:
    bound = policy["lower_bound_seconds"]
    return "–" if bound is None else f"{policy['average_jct_seconds'] / bound:.3f}"


def policies_table(answers: Sequence[Answer]) -> list[Row]:
    """Return all figures of one comparison."""
    rows: list[Row] = [
        (
            "policy",
            "average",
            "median",
            "p95",
            "p99",
            "makespan",
            "preemptions",
            "used",
            "worst slowdown",
            "/ baseline",
            "/ bound",
        )
    ]
    rows += [
        (
            comparison["policy"],
            *(seconds(comparison[f"{kind}_jct_seconds"]) for kind in ("average", "median", "p95", "p99")),
            whole(comparison["makespan_seconds"]),
            whole(comparison["preemptions"]),
            f"{100 * comparison['utilisation']:.1f} %",
            f"{comparison['worst_slowdown']:,.1f}",
            ratio(comparison),
            to_bound(comparison),
        )
        for comparison in answers[0]["comparisons"]
    ]
    return rows


def settings_table(name: str, key: str) -> Callable[[Sequence[Answer]], list[Row]]:
    """Return a table with settings down, policies across: average JCT, and its ratio to the first setting."""

    def rows(answers: Sequence[Answer]) -> list[Row]:
        policies = [comparison["policy"] for comparison in answers[0]["comparisons"]]
        first = {comparison["policy"]: comparison["average_jct_seconds"] for comparison in answers[0]["comparisons"]}
        table: list[Row] = [(name, *(cell for policy in policies for cell in (policy, "× the first")))]
        for answer in answers:
            averages = [
                (first[comparison["policy"]], comparison["average_jct_seconds"]) for comparison in answer["comparisons"]
            ]
            cells = (cell for base, average in averages for cell in (seconds(average), f"{average / base:.3f}"))
            table.append((f"{answer[key]:g}", *cells))
        return table

    return rows


def restarts_table(answers: Sequence[Answer]) -> list[Row]:
    """Return one part for each trace."""
    rows: list[Row] = []
    for part in (answers[: len(RESTARTS)], answers[len(RESTARTS) :]):
        table = settings_table("ρ in s", "restart_seconds")(part)
        rows += [("trace", *table[0])] * (not rows)
        rows += [(Path(answer["trace"]).stem, *row) for answer, row in zip(part, table[1:], strict=True)]
    return rows


def loads_table(answers: Sequence[Answer]) -> list[Row]:
    """Return a table with policies down, loads across: ratio to the baseline, then to the bound, and p99."""
    comparisons = answers[0]["comparisons"]
    loads = list(dict.fromkeys(comparison["load"] for comparison in comparisons))
    head = [
        f"{figure}, load {load:g}" for figure in ("average ratio", "average / bound", "p99 ratio") for load in loads
    ]
    rows: list[Row] = [("policy", *head)]
    for policy in dict.fromkeys(comparison["policy"] for comparison in comparisons):
        own = [comparison for comparison in comparisons if comparison["policy"] == policy]
        p99 = [f"{comparison['ratios']['p99_jct_seconds']['mean']:.2f}" for comparison in own]
        rows.append((policy, *(ratio(comparison) for comparison in own), *map(to_bound, own), *p99))
    return rows


def sigmas_table(answers: Sequence[Answer]) -> list[Row]:
    """Return a table with policies down, σ across: average JCT over that of the baseline of the first answer."""
    base = next(
        comparison for comparison in answers[0]["comparisons"] if comparison["policy"] == answers[0]["baseline"]
    )
    key = "speed_sigma" if any(answer["speed_sigma"] for answer in answers) else "estimate_sigma"
    rows: list[Row] = [("policy", *(f"σ = {answer[key]:g}" for answer in answers))]
    for place, policy in enumerate(comparison["policy"] for comparison in answers[0]["comparisons"]):
        averages = [answer["comparisons"][place]["average_jct_seconds"] for answer in answers]
        rows.append((policy, *(f"{average / base['average_jct_seconds']:.3f}" for average in averages)))
    return rows


def elastic_table(answers: Sequence[Answer]) -> list[Row]:
    """Return gangs first, then chunks a GPU; ratios to gang SRSF."""
    base = answers[0]["comparisons"][0]["average_jct_seconds"]
    rows: list[Row] = [("jobs", "policy", "average", "p99", "preemptions", "/ gang srsf", "/ bound")]
    names = ["gang", *(f"elastic, {n} chunk{'s' * (n > 1)} a GPU" for n in (1, 2, 4))]
    for name, answer in zip(names, answers, strict=True):
        for comparison in answer["comparisons"]:
            average = comparison["average_jct_seconds"]
            p99, stops = seconds(comparison["p99_jct_seconds"]), whole(comparison["preemptions"])
            rows.append(
                (
                    name,
                    comparison["policy"],
                    seconds(average),
                    p99,
                    stops,
                    f"{average / base:.3f}",
                    to_bound(comparison),
                )
            )
    return rows


def single_table(answers: Sequence[Answer]) -> list[Row]:
    """Return the figures of one simulation."""
    simulation = answers[0]
    stops = whole(simulation["preemptions"])
    rows: list[Row] = [("policy", "jobs", "average", "p99", "preemptions")]
    rows.append(
        (
            simulation["policy"],
            whole(simulation["jobs"]),
            seconds(simulation["average_jct_seconds"]),
            seconds(simulation["p99_jct_seconds"]),
            stops,
        )
    )
    return rows


def tables() -> list[Table]:
    """Return all tables of the pages."""
    all_tables = [
        Table("targets", ("benchmarks/simulator_targets.py",), None),
        Table("speed", ("benchmarks/simulator_speed.py",), None),
        Table("network-cost", ("benchmarks/network_cost.py",), None),
        Table("curve", ("benchmarks/simulator_curve.py --picture",), None),
    ]
    for name, gpus in POOLS.items():
        command = f"compare {typed_path(name)} --gpus {gpus} --policies {GANGS} --baseline srsf"
        short = {"elasticflow_cluster06": "ef06", "philly": "philly"}.get(name)
        kinds = ("jct-cdf", "jct-by-size") if short == "ef06" else ("jct-cdf", "load")
        pictures = tuple((f"{kind}.png", f"results-{short}-{kind}.png") for kind in kinds) if short else ()
        all_tables.append(Table(f"gang-{name}", (command,), policies_table, pictures))
    tenants = f"compare {typed_path('philly')} --gpus {POOLS['philly']} --policies fifo-skip,drf"
    all_tables.append(Table("drf", (tenants,), policies_table))
    all_tables.append(Table("tiresias", ("benchmarks/tiresias_orders.py",), None))
    periods = tuple(f"compare {HELIOS} --policies fifo,fifo-skip,srsf --period {p}" for p in (0, 10, 60, 300))
    all_tables.append(Table("period", periods, settings_table("period in s", "period_seconds")))
    restarts = tuple(
        f"compare {log} --policies srsf,tiresias,las --restart-seconds {rho}"
        for log in (EF06, HELIOS)
        for rho in RESTARTS
    )
    all_tables.append(Table("restart", restarts, restarts_table))
    all_tables.append(Table("restart-first", ("benchmarks/restart_costs.py",), None))
    elastic = tuple(f"compare {EF06} --policies srsf,fifo-skip --mode elastic --chunks-per-gpu {n}" for n in (1, 2, 4))
    all_tables.append(Table("elastic", (f"compare {EF06} --policies srsf,fifo-skip", *elastic), elastic_table))
    all_tables.append(Table("elastic-widths", ("benchmarks/elastic_widths.py",), None))
    beliefs = tuple(f"compare {EF06} --policies srsf,las --seeds 3 --estimate-sigma {s}" for s in (0, 0.5, 1, 2))
    all_tables.append(Table("estimates", beliefs, sigmas_table))
    all_tables.append(Table("policy-bars", ("benchmarks/policy_bars.py --preset jsac-edge",), None))
    all_tables.append(Table("cloud-bars", ("benchmarks/policy_bars.py --preset jsac-cloud",), None))
    all_tables.append(Table("sweeps", (f"benchmarks/sweeps.py {SWEPT} --picture",), None))
    for name in ("gang_bars", "estimate_errors", "fair_shares", "planner_speed"):
        options = " --most 5000 --picture" if name == "planner_speed" else ""
        all_tables.append(Table(name.replace("_", "-"), (f"benchmarks/{name}.py{options}",), None))
    all_tables.append(Table("explanations", ("benchmarks/explanations.py --processes 2",), None))
    distributing = "dorm,oasis,optimus,pd-ors-like,rrh"
    few = f"benchmarks/explanations.py --states 50 --policies {distributing}"
    all_tables.append(Table("explanations-of-distributions", (few,), None))
    cdf = (("jct-cdf.png", "results-jsac-jct-cdf.png"),)
    jsac = f"{JSAC} --jobs 60 --policies {DISPATCH} --loads 0.7,0.9,1.1 --seeds 3"
    all_tables.append(Table("jsac", (jsac,), loads_table, cdf))
    for policy in ("chunk", "chunk-faithful"):
        chart = ((f"gantt-{policy}.png", f"results-gantt-{policy}.png"),)
        all_tables.append(Table(f"gantt-{policy}", (f"{SMALL} --policy {policy}",), single_table, chart))
    tenth = f"{JSAC} --jobs 120 --chunk-scale 0.1 --policies {DISPATCH} --loads 0.7,0.9,1.1 --seeds 3"
    all_tables.append(Table("jsac-tenth", (tenth,), loads_table))
    speeds = tuple(
        f"{JSAC} --jobs 120 --chunk-scale 0.1 --policies chunk-faithful,chunk:aging=0,least-loaded,srtf --seeds 3 "
        f"--speed-sigma {s}"
        for s in (0, 0.3, 0.6)
    )
    all_tables.append(Table("speeds", speeds, sigmas_table))
    all_tables.append(Table("peers", ("benchmarks/peer_jct.py",), None))
    all_tables.append(Table("scale", ("benchmarks/scale.py",), None))
    all_tables.append(Table("real-nodes", ("benchmarks/real_nodes.py",), None))
    return all_tables


def answer_of(table: Table, place: int, *, again: bool) -> Answer:
    """Return the output of a table's command, which is run only if its answer is missing."""
    command = table.commands[place]
    directory = KEPT / table.name
    file = directory / f"{place}.json"
    if file.exists() and not again:
        stored: Answer = json.loads(file.read_text())
        if stored["asked"] == command:
            return stored
    directory.mkdir(parents=True, exist_ok=True)
    report = directory / "report" if table.pictures and not place and table.rows else None
    began, load = time.perf_counter(), os.getloadavg()[0]
    process = subprocess.run(words(command, report), cwd=ROOT, check=False, stdout=subprocess.PIPE, text=True)
    printed = process.stdout
    if process.returncode and not (is_script(command) and printed.strip()):  # a script exits with 1 if a bar is missed
        sys.exit(f"{table.name}: {shown(command)} ended with {process.returncode}")
    answer: Answer = json.loads(printed) if table.rows else {"printed": printed}
    answer |= {"asked": command, "wall_seconds": time.perf_counter() - began, "load_before": load}
    answer |= {"date": time.strftime("%Y-%m-%d")}
    file.write_text(json.dumps(answer, indent=1))
    print(f"{table.name}: {answer['wall_seconds']:.1f} s (load {load:.1f})  {shown(command)}", flush=True)
    return answer


def is_script(command: str) -> bool:
    return command.startswith("benchmarks/")


def shown(command: str) -> str:
    """Return the command as users type it."""
    return f"{'python' if is_script(command) else 'tranche'} {command}"


def words(command: str, report: Path | None) -> list[str]:
    """Return the arguments of a process that answers on stdout."""
    arguments = shlex.split(command)
    if is_script(command):
        return [sys.executable, *arguments]
    tranche = str(Path(sys.executable).with_name("tranche"))
    out_options = [] if report is None else ["--out", str(report)]
    process_options = ["--processes", "1"] if arguments[0] == "compare" else []
    return [tranche, *arguments, *process_options, "--format", "json", "--quiet", *out_options]


def markdown(rows: Sequence[Row]) -> str:
    """Format a table, figures to the right."""
    head, *rest = rows
    lines = [head, [":--" if i == 0 else "--:" for i in range(len(head))], *rest]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def block(table: Table, answers: Sequence[Answer]) -> str:
    """Return commands, figures and their date."""
    commands = "\n".join(map(shown, table.commands))
    wall, load = sum(answer["wall_seconds"] for answer in answers), max(answer["load_before"] for answer in answers)
    when = max(answer["date"] for answer in answers)
    alone = "" if "--processes" in commands else ", one process"
    footer = f"*{when}, {os.cpu_count()} cores ({platform.machine()}){alone}: {wall:,.0f} s at load ≤ {load:.1f}.*"
    return f"```sh\n{commands}\n```\n\n{figures(table, answers)}\n\n{footer}"


def figures(table: Table, answers: Sequence[Answer]) -> str:
    """Return the table, or the output of a script."""
    if table.rows is not None:
        return markdown(table.rows(answers))
    printed = str(answers[0]["printed"]).strip()
    is_markdown = printed.startswith("|") or "\n### " in printed
    return printed if is_markdown else f"```\n{printed}\n```"


def replaced(page: str, name: str, text: str) -> str:
    """Return the page with a new text between the markers of a table.

    Raises:
        ValueError: The page lacks the markers.
    """
    opening, closing = f"<!-- table {name} -->", f"<!-- end {name} -->"
    before, opened, rest = page.partition(opening)
    _, end, after = rest.partition(closing)
    if not opened or not end:
        raise ValueError(f"the page lacks the markers {opening} and {closing}")
    return f"{before}{opening}\n{text}\n{closing}{after}"


def draw_gain() -> None:
    """Draw the average JCT of `chunk` over that of others, by load, from the answers of the JSAC setting."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
    for axis, (name, title) in zip(
        axes, (("jsac", "27, 60 or 115 chunks"), ("jsac-tenth", "a tenth of them")), strict=True
    ):
        file = KEPT / name / "0.json"
        if not file.exists():
            return
        comparisons = json.loads(file.read_text())["comparisons"]
        average = {(c["policy"], c["load"]): c["average_jct_seconds"] for c in comparisons}
        loads = sorted({load for _, load in average})
        for other in ("chunk-faithful", "srpt-pool", "least-loaded", "fifo"):
            values = [average["chunk:aging=0", load] / average[other, load] for load in loads]
            axis.plot(loads, values, marker="o", label=f"chunk / {other}")
        axis.axhline(1.0, color="grey", linewidth=0.8)
        axis.set(xlabel="load", title=title, xticks=loads, ylim=(0, 1.15))
    axes[0].set_ylabel("ratio of average JCT")
    axes[1].legend(frameon=False)
    figure.savefig(PICTURES / "results-gain.png", dpi=130, metadata={"Software": None})


def main() -> None:
    """Run and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=[table.name for table in tables()])
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--dry", action="store_true", help="run, but do not change the page")
    options = parser.parse_args()
    chosen = [table for table in tables() if not options.only or table.name in options.only]
    for table in chosen:
        if options.list:
            print(table.name, *(f"  {shown(command)}" for command in table.commands), sep="\n")
            continue
        answers = [answer_of(table, place, again=options.again) for place in range(len(table.commands))]
        if options.dry:
            continue
        for page in table.pages:
            page.write_text(replaced(page.read_text(), table.name, block(table, answers)))
        for source, name in table.pictures:  # of compare; a script draws its own
            shutil.copy(KEPT / table.name / "report" / source, PICTURES / name)
    if not options.list:
        draw_gain()


if __name__ == "__main__":
    main()
