"""``tranche``: the entry point and its commands."""

import click

import tranche
from tranche.cli.compare import compare
from tranche.cli.demo import demo
from tranche.cli.policies import policies
from tranche.cli.replay import replay
from tranche.cli.scheduler import scheduler
from tranche.cli.simulate import simulate


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(tranche.__version__, prog_name="tranche")
def main() -> None:
    """Schedule distributed training on edge-cloud Kubernetes clusters so that jobs complete sooner."""


main.add_command(compare)
main.add_command(demo)
main.add_command(policies)
main.add_command(replay)
main.add_command(scheduler)
main.add_command(simulate)
