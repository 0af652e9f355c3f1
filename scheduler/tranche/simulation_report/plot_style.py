"""Style of pictures: two themes, colours that colour-blind readers can distinguish, axes of durations, file formats."""

import io
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from math import ceil, floor, log10
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from tranche.simulation_report.formatting import TICKS_SECONDS, format_duration

DPI = 110
_METADATA: dict[str, dict[str, None]] = {
    "png": {"Software": None},
    "svg": {"Date": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
"""Metadata that would change with the time or the version."""


@dataclass(frozen=True, slots=True)
class Theme:
    """Colours of one mode; the series are those of Okabe and Ito, lightened for the dark mode."""

    paper: str
    ink: str
    muted: str
    grid: str
    series: tuple[str, ...]
    alarm: str


LIGHT = Theme(
    paper="#ffffff",
    ink="#1b1f24",
    muted="#59636e",
    grid="#dfe3e8",
    series=("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"),
    alarm="#b00020",
)
DARK = Theme(
    paper="#161b22",
    ink="#e6edf3",
    muted="#9aa4af",
    grid="#2d343d",
    series=("#56b4e9", "#f0883e", "#3fc99a", "#e3a0c6", "#f0c24e", "#8da9ff"),
    alarm="#ff7b72",
)
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1.5, 1.5)))
"""Line styles; neighbors differ, so that a curve under another one shows through its gaps."""

Draw = Callable[[Figure, Theme], None]


def render(draw: Draw, theme: Theme, width: float, height: float, form: str = "png") -> bytes:
    """Draw a picture and return it as a file, the same bytes for the same data.

    Args:
        draw: Function that draws on an empty figure with a layout engine that keeps texts apart.
        theme: Colours of the picture.
        width: Width in inches.
        height: Height in inches.
        form: Format: ``png``, ``svg`` or ``pdf``.
    """
    settings: Any = {
        "svg.hashsalt": "tranche",
        "pdf.fonttype": 42,
        "font.size": 11,
        "text.parse_math": False,
        "text.color": theme.ink,
        "axes.edgecolor": theme.muted,
        "axes.facecolor": theme.paper,
        "axes.labelcolor": theme.ink,
        "axes.titlesize": 11,
        "axes.titlelocation": "left",
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "grid.color": theme.grid,
        "grid.linewidth": 0.8,
        "xtick.color": theme.muted,
        "ytick.color": theme.muted,
        "xtick.labelcolor": theme.ink,
        "ytick.labelcolor": theme.ink,
        "legend.frameon": False,
    }
    with rc_context(settings), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a label in a script that the font lacks is drawn as boxes
        figure = Figure(figsize=(width, height), dpi=DPI, facecolor=theme.paper, layout="constrained")
        draw(figure, theme)
        out = io.BytesIO()
        figure.savefig(out, format=form, metadata=_METADATA[form])
    return out.getvalue()


def lines(theme: Theme) -> Iterator[dict[str, Any]]:
    """Yield colour and dashes of one series after the other; the pairs repeat after three rounds of colours."""
    for number in count():
        turn, place = divmod(number, len(theme.series))
        yield {"color": theme.series[place], "linestyle": DASHES[(turn + place) % len(DASHES)]}


def text_on(colour: str) -> str:
    """Return black or white, whichever has more contrast (WCAG) on a background of that colour (``#rrggbb``)."""
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#000000" if luminance > 0.179 else "#ffffff"


def heading(figure: Figure, text: str) -> None:
    """Add the title of a picture, at its upper left."""
    figure.suptitle(text, x=0.01, ha="left", fontsize=13, fontweight="bold")


LEGEND_CHARACTERS = 96
"""Number of characters side by side under a picture, with 8 more for the line of each entry."""


def legend_below(figure: Figure, axes: Axes, entries: int, columns: int = 3) -> None:
    """Add a legend under the picture, where it covers no data; none for a single entry.

    Its rows, read one after the other, have the order of the series; matplotlib fills columns.
    """
    handles, labels = axes.get_legend_handles_labels()
    fitting = LEGEND_CHARACTERS // (max(map(len, labels), default=0) + 8)
    if entries > 1:
        count = max(1, min(entries, columns, fitting))
        order = [index for column in range(count) for index in range(column, len(labels), count)]
        figure.legend(
            [handles[index] for index in order],
            [labels[index] for index in order],
            loc="outside lower center",
            ncols=count,
        )


_ROUND = (
    (60.0, (1, 1.5, 2, 3, 5, 7, 10, 15, 20, 30, 45)),
    (3600.0, (1, 1.5, 2, 3, 4, 6, 9, 12, 18)),
    (86400.0, (1, 1.5, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300)),
)
"""Lengths of units in seconds, and the multiples at which a short axis has ticks."""


def logarithmic_durations(axis: Any, low: float, high: float) -> None:
    """Make an axis logarithmic from low to high seconds, with ticks at round durations."""
    axis.axes.set(**{f"{axis.axis_name}scale": "log", f"{axis.axis_name}lim": (low, high)})
    axis.set_minor_locator(NullLocator())
    named = [(value, text) for value, text in TICKS_SECONDS if low <= value <= high]
    if len(named) < 3:
        exponents = range(floor(log10(low)), ceil(log10(min(high, 60.0))) + 1)
        values = [digit * 10.0**exponent for exponent in exponents for digit in (1, 1.5, 2, 3, 5, 7)]
        values = [value for value in values if value < 60.0] + [c * s for s, counts in _ROUND for c in counts]
        named = [(value, format_duration(value)) for value in values if low <= value <= high]
    axis.set_major_locator(FixedLocator([value for value, _ in named]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: dict(named).get(value, "")))
