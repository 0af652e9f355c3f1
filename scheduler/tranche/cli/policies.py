"""``tranche policies``: list of the scheduling policies, and the options of one."""

import click

from tranche.cli.errors import OneLineCommand
from tranche.policies import POLICIES
from tranche.policies.base import Policy
from tranche.policies.option import options_of


@click.command(cls=OneLineCommand)
@click.argument("name", required=False, type=click.Choice(sorted(POLICIES)), metavar="[NAME]")
def policies(name: str | None) -> None:
    """List the scheduling policies, or the options of one.

    The list has a line for each policy: name, whether it preempts, where it can be used, source.
    """
    if name is not None:
        _describe(POLICIES[name])
        return
    width = max(map(len, POLICIES))
    for policy_name, policy in sorted(POLICIES.items()):
        preempts = "preemptive" if policy.preempts else ""
        click.echo(f"{policy_name:<{width}}  {preempts:<10}  {policy.used:<15}  {policy.source}")


def _describe(policy: Policy) -> None:
    uses = [("priority classes", policy.uses_tiers), ("weights", policy.uses_weights)]
    click.echo(f"{policy.name}: {policy.source}")
    click.echo(f"  used: {policy.used}; preempts: {'yes' if policy.preempts else 'no'}; ", nl=False)
    click.echo("; ".join(f"{subject}: {'yes' if used else 'no'}" for subject, used in uses))
    options = options_of(policy)
    if not options:
        click.echo("  The policy has no options.")
        return
    click.echo(f"  Options, written as {policy.name}:{options[0].name}={options[0].default}:")
    for option in options:
        click.echo(f"    {option.name} (default {option.default})")
        click.echo(click.wrap_text(option.meaning, initial_indent="        ", subsequent_indent="        "))
