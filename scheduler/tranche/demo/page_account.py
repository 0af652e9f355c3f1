"""Account for the web page of the demo: a ServiceAccount with the cluster role `view`."""

from tranche.auth.user_access import AUDIENCE
from tranche_testcluster import Cluster

NAME, NAMESPACE = "demo-viewer", "default"
TOKEN_SECONDS = 86_400


def create_visitor(cluster: Cluster) -> None:
    """Create the account; no effect if it exists.

    Raises:
        ClusterError: the API server rejects the request.
    """
    account = f"--serviceaccount={NAMESPACE}:{NAME}"
    for command in (
        ("serviceaccount", NAME, f"--namespace={NAMESPACE}"),
        ("clusterrolebinding", NAME, "--clusterrole=view", account),
    ):
        cluster.kubectl("apply", "-f", "-", input=cluster.kubectl("create", *command, "--dry-run=client", "-o", "yaml"))


def visitor_token(cluster: Cluster) -> str:
    """Create a token that is valid for the page only.

    Raises:
        ClusterError: the API server rejects the request.
    """
    options = (f"--namespace={NAMESPACE}", f"--audience={AUDIENCE}", f"--duration={TOKEN_SECONDS}s")
    return cluster.kubectl("create", "token", NAME, *options).strip()
