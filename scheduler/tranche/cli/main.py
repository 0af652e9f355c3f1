"""``tranche``: the entry point and its commands."""

from importlib import import_module

import click

import tranche

MODULES = {
    "api": "api",
    "batch-size": "calculation.batch_size",
    "compare": "compare",
    "demo": "demo",
    "extender": "extender",
    "planner": "planner",
    "policies": "policies",
    "presets": "presets",
    "replay": "replay",
    "scheduler": "scheduler",
    "simulate": "simulate",
}
"""Module of each command below this package. The command is the module's attribute of the module's own name."""


class Commands(click.Group):
    """Group that imports a command when it is used, so that each process has only its own code in memory."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands."""
        return list(MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None if there is none of that name."""
        if cmd_name not in MODULES:
            return None
        module = MODULES[cmd_name]
        found: click.Command = getattr(import_module(f"tranche.cli.{module}"), module.rpartition(".")[2])
        return found


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(tranche.__version__, prog_name="tranche")
def main() -> None:
    """Schedule distributed training on edge-cloud Kubernetes clusters so that jobs complete sooner."""
