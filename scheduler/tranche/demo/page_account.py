"""Somebody who may look at the demo's page: an account with the role `view`, Sites and jobs included."""

from tranche.auth.user_access import AUDIENCE
from tranche_testcluster import Cluster

NAME, NAMESPACE = "demo-viewer", "default"
TOKEN_SECONDS = 86_400


def create_visitor(cluster: Cluster) -> None:
    """Create the account; harmless if it exists.

    Raises:
        ClusterError: if the API server refuses.
    """
    account = f"--serviceaccount={NAMESPACE}:{NAME}"
    for command in (
        ("serviceaccount", NAME, f"--namespace={NAMESPACE}"),
        ("clusterrolebinding", NAME, "--clusterrole=view", account),
    ):
        cluster.kubectl("apply", "-f", "-", input=cluster.kubectl("create", *command, "--dry-run=client", "-o", "yaml"))


def visitor_token(cluster: Cluster) -> str:
    """A token that opens the page and nothing else.

    Raises:
        ClusterError: if the API server refuses.
    """
    options = (f"--namespace={NAMESPACE}", f"--audience={AUDIENCE}", f"--duration={TOKEN_SECONDS}s")
    return cluster.kubectl("create", "token", NAME, *options).strip()
