"""``tranche presets``: list of the presets and of the layouts of job logs."""

import click

from tranche.cli.errors import OneLineCommand


@click.command(cls=OneLineCommand)
def presets() -> None:
    """List the presets of clusters and the layouts of logs.

    A preset draws a cluster, and with --arrivals the jobs. A layout names the columns of a job log; without --layout,
    the header determines it.
    """
    from tranche.simulation.job_log.layout import KNOWN_LAYOUTS
    from tranche.simulation.workload.presets import PRESETS

    width = max(map(len, [*PRESETS, *(layout.name for layout in KNOWN_LAYOUTS)]))
    click.echo("Presets (--preset):")
    for name, text in PRESETS.items():
        click.echo(f"  {name:<{width}}  {text}")
    click.echo("Layouts of job logs (--layout), with the columns that they require:")
    for layout in KNOWN_LAYOUTS:
        click.echo(f"  {layout.name:<{width}}  {', '.join(layout.columns)} ({layout.source})")
