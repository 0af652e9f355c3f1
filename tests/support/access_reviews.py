"""Questions to the API server about the permissions of a user."""

from collections.abc import Sequence

from support.waiting import eventually
from tranche_testcluster import Cluster

REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


def is_allowed(cluster: Cluster, user: str, groups: Sequence[str], request: str) -> bool:
    """Ask the API server; a request reads ``<verb> <resource>[.<group>][/<subresource>] [-n <namespace> [<name>]]``."""
    words = request.split()
    full, _, subresource = words[1].partition("/")
    resource, _, group = full.partition(".")
    attributes = {
        "verb": words[0],
        "resource": resource,
        "group": group,
        "subresource": subresource,
        "namespace": words[3] if len(words) > 2 else "default",
        "name": words[4] if len(words) > 4 else "",
    }
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "groups": list(groups), "resourceAttributes": attributes},
    }
    status, answer = cluster.request("POST", REVIEWS, body)
    assert status == 201, answer
    return bool(answer["status"]["allowed"])


def await_permission(cluster: Cluster, user: str, groups: Sequence[str], request: str) -> None:
    """Wait until the API server allows a request, in the form of `is_allowed`.

    It reads roles and bindings from its own watches, and the controller-manager aggregates roles. Both take a moment
    after a role or a binding has been created.
    """
    eventually(lambda: is_allowed(cluster, user, groups, request), f"{user} may {request}")
