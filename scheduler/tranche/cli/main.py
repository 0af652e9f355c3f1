"""``tranche``: the entry point and its commands."""

from importlib import import_module

import click

import tranche

COMMANDS = (
    "api",
    "batch-size",
    "compare",
    "demo",
    "extender",
    "planner",
    "policies",
    "presets",
    "replay",
    "scheduler",
    "simulate",
)
"""Commands, each the attribute of its name in the module of its name, with underscores."""


class Commands(click.Group):
    """Group that imports a command when it is used, so that each process has only its own code in memory."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None if there is none of that name."""
        if cmd_name not in COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        found: click.Command = getattr(import_module(f"tranche.cli.{name}"), name)
        return found


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(tranche.__version__, prog_name="tranche")
def main() -> None:
    """Schedule distributed training on edge-cloud Kubernetes clusters so that jobs complete sooner."""
