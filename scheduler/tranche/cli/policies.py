"""``tranche policies``: what can be chosen."""

import click

from tranche.policies import POLICIES


@click.command()
def policies() -> None:
    """List the scheduling policies, one line each, with their source."""
    width = max(map(len, POLICIES))
    for name, policy in sorted(POLICIES.items()):
        click.echo(f"{name:<{width}}  {policy.source}")
