"""``tranche demo``: see it work on this machine."""

from pathlib import Path

import click
from rich.console import Console

from tranche.cli.option_types import LIVE_POLICY


@click.command()
@click.option("--policy", default="chunk", show_default=True, type=LIVE_POLICY)
@click.option("--seed", default=1, show_default=True, help="Draws what the real log does not say (chunks, data site).")
@click.option(
    "--slower",
    default=1.0,
    show_default=True,
    type=click.FloatRange(min=1.0, max=100.0),
    help="Make all times of the jobs longer by this factor: the control plane's own delays weigh less.",
)
@click.option("--keep", is_flag=True, help="Leave everything running until Ctrl-C.")
@click.option("--directory", type=click.Path(path_type=Path), help="For logs and data (default: a temporary folder).")
@click.option("--picture", type=click.Path(path_type=Path), help="Write the terminal's picture at half-time as SVG.")
def demo(policy: str, seed: int, slower: float, keep: bool, directory: Path | None, picture: Path | None) -> None:
    """Run real jobs on a real Kubernetes control plane on this machine, two to three minutes (times --slower)."""
    from tranche.demo.run import DemoError, DemoSettings, run

    console = Console()
    try:
        succeeded = run(console, DemoSettings(policy, seed, slower, keep, directory, picture))
    except DemoError as error:
        raise click.ClickException(str(error)) from None
    except KeyboardInterrupt:
        raise click.ClickException("stopped by Ctrl-C; everything that the demo started has been stopped") from None
    if not succeeded:
        raise click.ClickException("not every job succeeded")
