"""Errors of the client: one line each, with what to do."""

from tranche.kube.client.errors import ApiError, Unreachable


class ClientError(Exception):
    """Base class of all client errors."""


class NoSuchJob(ClientError):  # noqa: N818 (says what happened)
    """The TrainingJob does not exist."""

    def __init__(self, namespace: str, name: str) -> None:
        hint = ": give the name alone, without its kind or namespace" if "/" in name else ""
        super().__init__(f"no TrainingJob {name or repr(name)} in namespace {namespace}{hint}")


class JobFailed(ClientError):  # noqa: N818 (says what happened)
    """The job ended without success."""


class WaitedTooLong(ClientError, TimeoutError):  # noqa: N818 (says what happened)
    """The job has not ended within the time limit; it continues."""


class ManifestError(ClientError):
    """The manifest is not exactly one TrainingJob, or the API server rejects it."""


class ClusterError(ClientError):
    """The API server cannot be reached, or rejects the request."""


def refusal(doing: str, error: ApiError) -> ClusterError:
    """Convert an API error to a one-line `ClusterError`.

    Args:
        doing: Attempted action, such as "list TrainingJobs".
        error: Error of the API server.
    """
    text = " ".join(error.message.split())
    if isinstance(error, Unreachable):
        if error.reason == "NoConfiguration":
            text = text.rstrip(".")
            return ClusterError(f"no cluster is configured: {text}: use --kubeconfig or --context, or set KUBECONFIG")
        return ClusterError(f"the API server cannot be reached: {error.reason}: {text}")
    if error.status == 401:
        return ClusterError(f"cannot {doing}: the API server rejected the credentials: log in again")
    if error.status == 403:
        return ClusterError(f"cannot {doing}: {text}: ask the administrators of the cluster for this permission")
    if error.status == 404:
        return ClusterError(f"cannot {doing}: {text}: is tranche installed on this cluster?")
    return ClusterError(f"cannot {doing}: {error.status} {error.reason}: {text}")
