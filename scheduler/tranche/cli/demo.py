"""``tranche demo``: a demonstration on this machine."""

from pathlib import Path

import click
from rich.console import Console

from tranche.cli.errors import OneLineCommand
from tranche.cli.option_types import LIVE_POLICY, Finite


@click.command(cls=OneLineCommand)
@click.option("--policy", default="chunk", show_default=True, type=LIVE_POLICY)
@click.option(
    "--seed", default=1, show_default=True, help="Seed for what the real log does not contain (chunks, data site)."
)
@click.option(
    "--slower",
    default=1,
    show_default=True,
    type=Finite(1, 100),
    help="Multiply all times of the jobs by this factor, so that delays of the control plane matter less.",
)
@click.option("--keep", is_flag=True, help="Leave everything running until Ctrl-C.")
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory for logs and data [default: a temporary directory].",
)
@click.option(
    "--picture",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the screen at half-time to this SVG file.",
)
def demo(policy: str, seed: int, slower: float, keep: bool, directory: Path | None, picture: Path | None) -> None:
    """Run a demo on a real Kubernetes control plane.

    It runs jobs of a real log on this machine, in 2 to 3 minutes (times --slower).
    """
    from tranche.demo.run import DemoError, DemoSettings, run

    console = Console()
    try:
        succeeded = run(console, DemoSettings(policy, seed, slower, keep, directory, picture))
    except DemoError as error:
        raise click.ClickException(str(error)) from None
    except KeyboardInterrupt:
        raise click.ClickException("stopped by Ctrl-C; all processes of the demo have been stopped") from None
    if not succeeded:
        raise click.ClickException("not every job succeeded")
