"""``tranche policies``: list of the scheduling policies."""

import click

from tranche.policies import POLICIES


@click.command()
def policies() -> None:
    """List the scheduling policies, one line each: name, whether it preempts, where it can be used, source."""
    width = max(map(len, POLICIES))
    for name, policy in sorted(POLICIES.items()):
        preempts = "preemptive" if policy.traits.preemptive else ""
        used = "live, simulated" if policy.traits.recoverable else "simulated"
        click.echo(f"{name:<{width}}  {preempts:<10}  {used:<15}  {policy.source}")
