"""Known layouts of job logs, recognized by their header."""

from collections.abc import Sequence
from dataclasses import dataclass

from tranche.simulation.job_log.row import quote

REQUIRED = ("job_id", "submit_time", "num_gpu", "duration")


@dataclass(frozen=True, slots=True)
class Layout:
    """Family of logs; the order of columns is free, and unknown columns are ignored."""

    name: str
    source: str
    marks: tuple[str, ...] = ()
    """Columns besides `REQUIRED` that identify a log of this family."""
    tenant: str | None = None
    """Column with the tenant of a job."""
    model: str | None = None
    """Column with the model that a job trained."""

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns that the header must have."""
        return (*REQUIRED, *self.marks)


KNOWN_LAYOUTS = (
    Layout("tiresias", "SymbioticLab/Tiresias, the job files of its simulator", ("iterations", "model_name"), None,
           "model_name"),
    Layout("philly", "Microsoft Philly with virtual clusters, as in petuum/adaptdl", ("vc",), "vc"),
    Layout("plain", "one job a row"),
)  # fmt: skip
"""Known layouts; those with more required columns are tried first."""
_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "vertical bars"}
"""Characters that separate columns in other formats, with their names."""
_BY_NAME = {layout.name: layout for layout in KNOWN_LAYOUTS}
LAYOUTS: tuple[str, ...] = ("auto", *sorted(_BY_NAME))
"""Values of the option `layout`; ``auto`` chooses by the header."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Positions of the cells in a row, counted from 0; None: missing."""

    layout: str
    width: int
    """Number of cells of a row."""
    job_id: int
    submit: int
    gpus: int
    duration: int
    tenant: int | None
    model: int | None


def find_columns(header: Sequence[str], layout: str = "auto") -> Columns:
    """Return the positions of the cells according to the header.

    Args:
        header: Names of the columns.
        layout: One of `LAYOUTS`.

    Raises:
        ValueError: Columns are missing or duplicated, or the layout does not exist.
    """
    names = [name.strip() for name in header]
    if layout != "auto" and layout not in _BY_NAME:
        raise ValueError(f"there is no layout {quote(layout)}: choose one of {', '.join(LAYOUTS)}")
    chosen = _BY_NAME["plain" if layout == "auto" else layout]
    if layout == "auto":
        chosen = next((candidate for candidate in KNOWN_LAYOUTS if set(candidate.columns) <= set(names)), chosen)
    missing = [name for name in chosen.columns if name not in names]
    if missing:
        chosen_layout = "" if layout == "auto" else f" (layout {layout})"
        separator = next((name for sign, name in _SEPARATORS.items() if len(names) == 1 and sign in names[0]), "")
        hint = f"; separate the columns by commas, not by {separator}" if separator else ""
        raise ValueError(f"the header lacks {', '.join(missing)}{chosen_layout}: it is {quote(','.join(names))}{hint}")
    twice = [name for name in chosen.columns if names.count(name) > 1]
    if twice:
        raise ValueError(f"the header has the column {twice[0]} twice")
    at = {name: names.index(name) for name in chosen.columns}
    return Columns(
        layout=chosen.name,
        width=len(names),
        job_id=at["job_id"],
        submit=at["submit_time"],
        gpus=at["num_gpu"],
        duration=at["duration"],
        tenant=at[chosen.tenant] if chosen.tenant else None,
        model=at[chosen.model] if chosen.model else None,
    )
