"""Reference of the command lines: the output of every command with ``--help``."""

from collections.abc import Iterator

import click

from tranche.cli.kubectl import main as kubectl
from tranche.cli.main import main as tranche
from tranche_codegen.reference.markdown_table import table
from tranche_operator.main import main as operator

PROGRAMS: dict[str, click.Command] = {"tranche": tranche, "tranche-operator": operator, "kubectl tranche": kubectl}
WIDTH = 110
_HEAD = """\
# Commands and settings

Generated from the programs by `make generate`; do not edit. Every command says this with `--help`.
"""
_VARIABLES = """\
## Settings from the environment

These options may come from the environment instead; the command line wins.
"""


def commands_page() -> str:
    """Return the text of docs/reference/commands.md."""
    parts = [_HEAD]
    for name, program in PROGRAMS.items():
        for path, command in _tree(name, program):
            command._help_option = None  # click keeps the one of the first context, whatever that called it
            context = command.make_context(
                path, [], resilient_parsing=True, max_content_width=WIDTH, terminal_width=WIDTH
            )
            parts.append(f"## {path}\n\n```text\n{command.get_help(context)}\n```\n")
    return "\n".join([*parts, _VARIABLES, table(("variable", "option of", "option"), _variables())])


def _tree(path: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in sorted(command.list_commands(context)):
            child = command.get_command(context, name)
            assert child is not None
            yield from _tree(f"{path} {name}", child)


def _variables() -> Iterator[tuple[str, str, str]]:
    for name, program in PROGRAMS.items():
        for path, command in _tree(name, program):
            prefix = command.context_settings.get("auto_envvar_prefix")
            for option in command.params:
                own = option.envvar
                if isinstance(own, str):
                    yield f"`{own}`", f"`{path}`", f"`{option.opts[-1]}`"
                elif prefix and option.name not in ("version", "help"):
                    yield f"`{prefix}_{str(option.name).upper()}`", f"`{path}`", f"`{option.opts[-1]}`"
