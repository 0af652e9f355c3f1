"""``tranche batch-size``: size limits of the batches in which an inference server takes its requests."""

import csv
from collections.abc import Mapping
from dataclasses import asdict
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from tranche.cli.errors import InputError, OneLineCommand, input_errors
from tranche.cli.option_types import SECONDS, SHARE, SIZE, Finite

if TYPE_CHECKING:
    from tranche.estimate.batch_service import BatchDelay, BatchMemory, BatchQueue, Law, ServiceTime

MAX_PLACES = 64
"""Most waiting places: the optimizer computes N²/2 pairs of limits."""
COLUMNS = ("choice", "a", "b", "delay, s", "lost", "waiting", "batch", "memory, GiB")


@click.command("batch-size", cls=OneLineCommand)
@click.option("--rate", required=True, type=Finite(1e-9, 10**9), help="Requests per second.")
@click.option("--places", required=True, type=click.IntRange(1, MAX_PLACES), help="Requests that can wait.")
@click.option("--base-time", type=SECONDS, help="Service time of a batch without its requests, in seconds.")
@click.option("--item-time", type=SECONDS, help="Additional service time for each request of a batch, in seconds.")
@click.option(
    "--law",
    default="deterministic",
    show_default=True,
    type=click.Choice(["deterministic", "exponential"]),
    help="Distribution of the service time.",
)
@click.option(
    "--samples",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="CSV with the columns size and seconds: measured service times, in place of the three options above.",
)
@click.option("--base-memory", default="0", type=SIZE, help="GPU memory of the model without a batch.")
@click.option("--item-memory", default="0", type=SIZE, help="GPU memory of each request of a batch.")
@click.option("--memory-limit", type=SIZE, help="GPU memory of the server [default: no limit].")
@click.option("--loss-limit", default=1.0, type=SHARE, help="Largest share of requests that may be lost, from 0 to 1.")
@click.option("--format", "form", default="table", show_default=True, type=click.Choice(["table", "json", "csv"]))
def batch_size(
    rate: float,
    places: int,
    base_time: float | None,
    item_time: float | None,
    law: "Law",
    samples: Path | None,
    base_memory: float,
    item_memory: float,
    memory_limit: float | None,
    loss_limit: float,
    form: Literal["table", "json", "csv"],
) -> None:
    """Choose the size limits of the batches of an inference server.

    The server starts a batch when at least a requests wait, and takes at most b of them. The command prints the
    limits of least mean delay that keep memory and loss, beside single requests, the best fixed size, and greedy
    batches (all that wait). The model is M/G(a,b)/1/N with Poisson arrivals; no cluster is involved.
    """
    from tranche.estimate.batch_service import BatchMemory, BatchQueue

    with input_errors():
        service = _service(samples, base_time, item_time, law, places)
        queue = BatchQueue(rate, places, service)
        memory = BatchMemory(base_memory, item_memory, inf if memory_limit is None else memory_limit)
        rows = _choices(queue, memory, loss_limit)
    _print(rows, memory, form)


def _service(
    samples: Path | None, base_time: float | None, item_time: float | None, law: "Law", places: int
) -> "ServiceTime":
    """Return the service time that the options describe.

    Raises:
        InputError: neither or both forms are given, or the file has other columns or no numbers.
    """
    from tranche.estimate.batch_service import ServiceTime

    if (samples is None) == (base_time is None and item_time is None):
        raise InputError("batch-size needs either --samples, or --base-time and --item-time")
    if samples is None:
        return ServiceTime.linear(base_time or 0.0, item_time or 0.0, places, law)
    seconds: dict[int, list[float]] = {}
    with samples.open(encoding="utf-8", newline="") as file:
        for number, row in enumerate(csv.DictReader(file), start=2):
            try:
                seconds.setdefault(int(row["size"]), []).append(float(row["seconds"]))
            except (KeyError, TypeError, ValueError):
                raise InputError(
                    f"{samples}, line {number}: expected numbers in the columns size and seconds"
                ) from None
    return ServiceTime.sampled(seconds)


def _choices(queue: "BatchQueue", memory: "BatchMemory", loss_limit: float) -> dict[str, "BatchDelay"]:
    """Return the best limits and those of the comparators, by name.

    Raises:
        InputError: no limits keep memory and loss.
    """
    from tranche.estimate.batch_service import best_fixed_size, best_limits

    best = best_limits(queue, memory, loss_limit)
    if best is None:
        raise InputError("no batch keeps both limits; raise --memory-limit, --loss-limit or --places")
    choices = {"best": best, "single": queue.figures(1, 1)}
    fixed = best_fixed_size(queue, memory, loss_limit)
    if fixed is not None:
        choices["fixed"] = fixed
    return {**choices, "greedy": queue.figures(1, queue.largest)}


def _print(rows: Mapping[str, "BatchDelay"], memory: "BatchMemory", form: Literal["table", "json", "csv"]) -> None:
    from tranche.cli.output import print_csv, print_json

    if form == "table":
        _print_table(rows, memory)
        return
    values = [{"choice": name, **asdict(delay), "memory_bytes": memory.of(delay.most)} for name, delay in rows.items()]
    if form == "json":
        print_json({"choices": values})
    else:
        print_csv(values)


def _print_table(rows: Mapping[str, "BatchDelay"], memory: "BatchMemory") -> None:
    lines = [COLUMNS]
    for name, delay in rows.items():
        figures = (
            f"{delay.delay_seconds:.5g}",
            f"{delay.loss:.3g}",
            f"{delay.queue_length:.4g}",
            f"{delay.batch_size:.3g}",
        )
        lines.append((name, str(delay.least), str(delay.most), *figures, f"{memory.of(delay.most) / 2**30:.3g}"))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for name, *cells in lines:
        aligned = [cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True)]
        over = name in rows and memory.of(rows[name].most) > memory.limit
        click.echo("  ".join([name.ljust(widths[0]), *aligned]) + ("  (over the limit)" if over else ""))
