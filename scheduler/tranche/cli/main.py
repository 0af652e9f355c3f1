"""``tranche``: the entry point and its commands."""

import atexit
import gc
import os
from importlib import import_module

import click

import tranche
from tranche.cli.errors import OneLineGroup

COMMANDS = {
    "api": "Run the report API, the web page and the read API.",
    "batch-size": "Choose the size limits of the batches of an inference server.",
    "compare": "Compare policies on the same jobs.",
    "demo": "Run a demo on a real Kubernetes control plane.",
    "extender": "Run the extender of kube-scheduler.",
    "planner": "Run the planner.",
    "policies": "List the scheduling policies, or the options of one.",
    "presets": "List the presets of clusters and the layouts of logs.",
    "replay": "Compare the history of a cluster with other policies.",
    "scheduler": "Run extender, planner and API on one machine.",
    "simulate": "Simulate the jobs of a log under one policy.",
}
"""First sentences of the commands' help, by name. A command is the attribute of its name, with underscores, in its
module."""
MODULES = {"batch-size": "calculation.batch_size"}
"""Module below this package of each command that is not in the module of its name."""
GC_THRESHOLD = 70_000
"""Number of new objects after which a command that simulates searches for cyclic garbage; few of them are cyclic."""
SIMULATING = ("compare", "replay", "simulate")
"""Commands that use numpy, but multiply no matrices."""


class Commands(OneLineGroup):
    """Group that imports a command when it is used, so that each process has only its own code in memory."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None if there is none of that name."""
        if cmd_name not in COMMANDS:
            return None
        if cmd_name in SIMULATING:  # OpenBLAS starts threads when numpy is imported, which takes 0.1 s of CPU time
            os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
            gc.set_threshold(GC_THRESHOLD)
            atexit.register(gc.freeze)  # the memory of a process that ends needs no search for garbage
        module = import_module(f"tranche.cli.{MODULES.get(cmd_name, cmd_name)}")
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(tranche.__version__, prog_name="tranche")
def main() -> None:
    """Schedule distributed training on edge-cloud Kubernetes clusters so that jobs complete sooner."""
