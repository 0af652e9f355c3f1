"""Live screen of the demo: job counts, GPUs by site, and the next jobs to complete."""

import io
import re
import time
from pathlib import Path
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tranche.demo.cluster_snapshot import Snapshot, age
from tranche.kube.api.resources import SiteObject, TrainingJob
from tranche.web.job_views import phase_of

SHOWN_JOBS = 8
COLUMNS = (("next to complete", 17), ("phase", 8), ("chunks", 6), ("planned completion", 20), ("why", None))
PICTURE_WIDTH = 132
FONT_FACE = re.compile(r"@font-face \{.*?\}", re.S)
"""Web font declarations, which are removed so that the picture uses installed fonts."""
LINE_SECONDS = 5.0
"""Interval between two lines if the output is not a terminal, in seconds."""


class Step:
    """Progress line of a step that starts, with its duration."""

    def __init__(self, console: Console, name: str) -> None:
        self._console = console
        self._name = name
        self._status = console.status(f"starting: {name}")
        self._begin = 0.0

    def __enter__(self) -> None:
        self._begin = time.monotonic()
        self._status.start()

    def __exit__(self, kind: object, *_: object) -> None:
        self._status.stop()
        if kind is None:
            self._console.print(f"  ready: {self._name} [dim]({time.monotonic() - self._begin:.1f} s)[/]")


class Screen:
    """Live screen on a terminal; otherwise one line every few seconds."""

    def __init__(self, console: Console, total: int, policy: str) -> None:
        self._console = console
        self._total = total
        self._policy = policy
        self._live = Live(console=console, auto_refresh=False, transient=False) if console.is_terminal else None
        self._last_line = -LINE_SECONDS

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def show(self, seconds: float, snapshot: Snapshot) -> None:
        """Draw the current state, `seconds` after the start."""
        if self._live:
            self._live.update(self._picture(seconds, snapshot), refresh=True)
        elif seconds - self._last_line >= LINE_SECONDS:
            self._last_line = seconds
            counts = self._counts(seconds, snapshot).plain
            self._console.print(f"{counts}  {_sites_line(snapshot.sites)}{_copies_line(snapshot)}", soft_wrap=True)

    def save(self, path: Path, seconds: float, snapshot: Snapshot) -> None:
        """Write the current screen as SVG."""
        recorder = Console(record=True, width=PICTURE_WIDTH, file=io.StringIO(), force_terminal=True)
        recorder.print(self._picture(seconds, snapshot))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(FONT_FACE.sub("", recorder.export_svg(title="make demo")))

    def _counts(self, seconds: float, snapshot: Snapshot) -> Text:
        phases = snapshot.phases
        waiting = phases["Waiting"] + phases["Suspended"]
        running = phases["Running"] + phases["Starting"]
        text = Text(f"{seconds:5.0f} s  ")
        text.append(f"{self._total - len(snapshot.jobs)} to come  ", style="dim")
        text.append(f"{waiting} waiting  ", style="yellow")
        text.append(f"{running} running  ", style="cyan")
        text.append(f"{phases['Succeeded']} done  ", style="green")
        if phases["Failed"]:
            text.append(f"{phases['Failed']} failed  ", style="red")
        return text.append(f"{snapshot.preemptions} preemptions", style="magenta")

    def _picture(self, seconds: float, snapshot: Snapshot) -> RenderableType:
        title = Text(f"tranche demo, policy {self._policy}", style="bold")
        return Group(title, self._counts(seconds, snapshot), Text(), _sites(snapshot), Text(), _jobs(snapshot))


def _sites(snapshot: Snapshot) -> Table:
    """Build a row per site: used GPUs, nodes at unlimited sites, and incoming copies."""
    table = Table.grid(padding=(0, 2))
    for site in snapshot.sites:
        gpus, used = site.status.gpus or 0, site.status.allocated_gpus or 0
        bar = ProgressBar(total=max(1, gpus), completed=min(used, gpus), width=24)
        amount = f"{used}/{gpus} GPUs"
        if site.spec.unlimited:
            amount += f" on {site.status.nodes or 0} nodes, on demand"
        incoming = [copy for copy in snapshot.copies if copy.target == site.metadata.name]
        sources = ", ".join(f"{copy.source} {copy.seconds:.0f} s" for copy in incoming)
        copies = Text(f"data coming from {sources}" if sources else "", style="blue")
        table.add_row(site.metadata.name, Text(site.spec.tier, style="dim"), bar, amount, copies)
    return table


def _copies_line(snapshot: Snapshot) -> str:
    links = [f"{copy.source} to {copy.target} {copy.seconds:.0f} s" for copy in snapshot.copies]
    return f"  copies: {', '.join(links)}" if links else ""


def _sites_line(sites: tuple[SiteObject, ...]) -> str:
    return "GPUs: " + ", ".join(f"{s.metadata.name} {s.status.allocated_gpus or 0}/{s.status.gpus or 0}" for s in sites)


def _jobs(snapshot: Snapshot) -> Table:
    table = Table(box=None, header_style="dim", pad_edge=False, expand=True)
    for name, width in COLUMNS:
        table.add_column(name, no_wrap=True, overflow="ellipsis", width=width, ratio=None if width else 1)
    for job in snapshot.next_completions(SHOWN_JOBS):
        table.add_row(*_job_row(job))
    for _ in range(SHOWN_JOBS - table.row_count):
        table.add_row()
    return table


def _job_row(job: TrainingJob) -> tuple[str, ...]:
    plan, progress = job.status.plan, job.status.progress
    end = plan.estimated_completion if plan else None
    when = f"{end:%H:%M:%S} (in {max(0.0, age(end)):.0f} s)" if end else ""
    return (
        job.metadata.name,
        phase_of(job),
        progress.chunks if progress else "",
        when,
        plan.explanation if plan else "",
    )
