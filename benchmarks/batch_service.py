"""Size limits of batches (`tranche batch-size`) against single requests, fixed and greedy batches, and a simulation.

``python benchmarks/batch_service.py`` takes a server whose batches of k requests take 10 + 2k ms on average and 2 + k/4
GiB of GPU memory, with 32 waiting places, and three laws of the service time: deterministic, exponential, and sampled
(200 log-normal draws for each size, σ = 0.5). The rates are shares of what a full batch within the memory limit serves.
For each it prints the limits (a, b) of least mean delay with at most 1 % lost requests (where none keep that, without
this limit), and delay and loss of all four choices by the model. The last two columns are the relative difference of
the best choice's delay from that of a simulation, and the standard error of the simulation. About two minutes of CPU;
``--requests`` and ``--loads`` change that. ``--picture`` draws the deterministic law instead.
"""

import argparse
import sys
from dataclasses import dataclass
from math import exp, inf
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from batch_simulation import Draw, deterministic, exponential, simulate
from tranche.estimate.batch_service import (
    BatchDelay,
    BatchMemory,
    BatchQueue,
    ServiceTime,
    best_fixed_size,
    best_limits,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tranche.simulation_report.plot_style import Theme

PICTURE = Path(__file__).parents[1] / "docs/pictures/batopt.png"
FIXED, EACH = 0.010, 0.002
"""Seconds of a batch, and of each of its requests."""
PLACES = 32
LOSS = 0.01
SIGMA, SAMPLES = 0.5, 200
LOADS = (0.1, 0.3, 0.6, 0.9, 1.2)
LIMITS = (4.0, inf)
"""Limits of GPU memory, in GiB."""
CHOICES = ("best", "single", "fixed", "greedy")
BAR = 0.01
"""Largest difference between model and simulation."""


@dataclass(frozen=True, slots=True)
class Service:
    """One law of the service time, for the model and for the simulation."""

    name: str
    time: ServiceTime
    draw: Draw


def services() -> list[Service]:
    """Return the three laws."""
    random = Random("service times")
    samples = {
        size: [(FIXED + EACH * size) * exp(random.gauss(-SIGMA * SIGMA / 2, SIGMA)) for _ in range(SAMPLES)]
        for size in range(1, PLACES + 1)
    }
    return [
        Service("deterministic", ServiceTime.linear(FIXED, EACH, PLACES), deterministic(FIXED, EACH)),
        Service("exponential", ServiceTime.linear(FIXED, EACH, PLACES, "exponential"), exponential(FIXED, EACH)),
        Service("sampled", ServiceTime.sampled(samples), lambda source, size: source.choice(samples[size])),
    ]


def rate_of(load: float, limit: float) -> float:
    """Return λ at a share of what full batches serve that keep the memory limit, per second."""
    largest = max(size for size in range(1, PLACES + 1) if memory(limit).of(size) <= limit)
    return load * largest / (FIXED + EACH * largest)


def memory(limit: float) -> BatchMemory:
    """Return the memory of a batch, in GiB."""
    return BatchMemory(2.0, 0.25, limit)


def choices(rate: float, time: ServiceTime, limit: float) -> dict[str, BatchDelay]:
    """Return the figures of the four choices; the loss is unlimited where no limits keep it."""
    queue = BatchQueue(rate, PLACES, time)
    best, fixed = (
        choose(queue, memory(limit), LOSS) or choose(queue, memory(limit)) for choose in (best_limits, best_fixed_size)
    )
    assert best is not None
    assert fixed is not None
    return {"best": best, "single": queue.figures(1, 1), "fixed": fixed, "greedy": queue.figures(1, PLACES)}


def difference(rate: float, service: Service, choice: BatchDelay, requests: int) -> tuple[float, float]:
    """Return the relative difference of the mean delay from that of a simulation, and its standard error."""
    simulated = simulate(rate, choice.least, choice.most, PLACES, service.draw, requests=requests // 10, runs=10)
    delay = simulated.delay_seconds
    return choice.delay_seconds / delay.mean - 1, delay.error / delay.mean


def line(load: float, limit: float, figures: dict[str, BatchDelay], apart: float, error: float) -> str:
    """Return a row of the table."""
    best = figures["best"]
    cells = "".join(f"{1000 * figures[name].delay_seconds:>9.2f}{100 * figures[name].loss:>7.2f}" for name in CHOICES)
    limits = f"{best.least},{best.most}"
    size = f"{memory(limit).of(best.most):.2f}"
    return f"{load:>5.1f}{limit:>6g}{limits:>7}{size:>7}{cells}{100 * apart:>+8.2f}{100 * error:>6.2f}"


def draw(service: Service) -> None:
    """Draw delays and losses of the choices over the load, within 4 GiB and without a limit."""
    from tranche.simulation_report.plot_style import LIGHT, heading, legend_below, lines, render

    loads = [step / 20 for step in range(2, 25)]
    curves = {limit: [choices(rate_of(x, limit), service.time, limit) for x in loads] for limit in LIMITS}

    def paint(figure: "Figure", theme: "Theme") -> None:
        grid = figure.subplots(2, 2, sharex=True, sharey="row")
        for column, limit in enumerate(LIMITS):
            upper, lower = grid[0][column], grid[1][column]
            for name, style in zip(CHOICES, lines(theme), strict=False):
                upper.plot(loads, [1000 * delays[name].delay_seconds for delays in curves[limit]], label=name, **style)
                lower.plot(loads, [100 * delays[name].loss for delays in curves[limit]], **style)
            upper.set_title("memory within 4 GiB (b ≤ 8)" if limit < inf else "no limit of memory (b ≤ 32)")
            upper.set(yscale="log", ylim=(10, 500))
            upper.set_yticks((10, 20, 50, 100, 200, 500), ("10", "20", "50", "100", "200", "500"))
            upper.minorticks_off()
            lower.set(xlabel="load; 1: what full batches serve")
            for axes in (upper, lower):
                axes.grid(visible=True)
        grid[0][0].set_ylabel("mean delay, ms")
        grid[1][0].set_ylabel("lost requests, %")
        legend_below(figure, grid[0][0], len(CHOICES), 4)
        heading(figure, "Batches of inference by the model M/G(a,b)/1/N, deterministic service")

    PICTURE.write_bytes(render(paint, LIGHT, 8.0, 5.0))


def main() -> None:
    """Compute, simulate and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=4_000_000, help="simulated requests of each row")
    parser.add_argument("--loads", nargs="+", type=float, default=list(LOADS))
    parser.add_argument("--picture", action="store_true")
    options = parser.parse_args()
    every = services()
    if options.picture:
        draw(every[0])
        return
    heading = "".join(f"{name + ', ms':>9}{'lost %':>7}" for name in CHOICES)
    print(f"{'law':<14}{'load':>5}{'GiB ≤':>6}{'a,b':>7}{'GiB':>7}{heading}{'sim %':>8}{'± %':>6}")
    largest = 0.0
    for service in every:
        for limit in LIMITS:
            for load in options.loads:
                rate = rate_of(load, limit)
                figures = choices(rate, service.time, limit)
                apart, error = difference(rate, service, figures["best"], options.requests)
                largest = max(largest, abs(apart))
                print(f"{service.name:<14}{line(load, limit, figures, apart, error)}", flush=True)
    print(f"largest difference between model and simulation: {100 * largest:.2f} %, bar {100 * BAR:g} %")
    sys.exit(largest > BAR)


if __name__ == "__main__":
    main()
