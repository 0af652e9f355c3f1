"""What can go wrong between a user and a cluster: one line each, which says what to do."""

from tranche.kube.errors import ApiError, Unreachable


class ClientError(Exception):
    """Base of all errors of this room."""


class NoSuchJob(ClientError):  # noqa: N818 (says what happened)
    """There is no TrainingJob of that name."""

    def __init__(self, namespace: str, name: str) -> None:
        super().__init__(f"no TrainingJob {name} in namespace {namespace}")


class JobFailed(ClientError):  # noqa: N818 (says what happened)
    """The job has ended, and not with success."""


class WaitedTooLong(ClientError, TimeoutError):  # noqa: N818 (says what happened)
    """The job is not over yet; it goes on."""


class ManifestError(ClientError):
    """This is not one TrainingJob, or the API server does not take it."""


class ClusterError(ClientError):
    """The API server cannot be reached, or refuses."""


def refusal(doing: str, error: ApiError) -> ClusterError:
    """The API server's refusal as one line.

    Args:
        doing: What was tried, such as "list TrainingJobs".
        error: What the API server has said.
    """
    text = " ".join(error.message.split())
    if isinstance(error, Unreachable):
        if error.reason == "NoConfiguration":
            return ClusterError(f"no cluster is configured: {text}: use --kubeconfig or --context, or set KUBECONFIG")
        return ClusterError(f"the API server cannot be reached: {error.reason}: {text}")
    if error.status == 401:
        return ClusterError(f"cannot {doing}: the API server rejected the credentials: log in again")
    if error.status == 403:
        return ClusterError(f"cannot {doing}: {text}: ask the administrators of the cluster for this permission")
    if error.status == 404:
        return ClusterError(f"cannot {doing}: {text}: is tranche installed on this cluster?")
    return ClusterError(f"cannot {doing}: {error.status} {error.reason}: {text}")
