"""Bind verb. It is off by default, because the filter leaves only the planned node anyway.

A response after kube-scheduler's ``httpTimeout`` would leave a running pod marked as unschedulable permanently.
Therefore the verb returns an error before that time; it is idempotent, so the next attempt finds the pod bound.
"""

import time

import msgspec
from fastapi import FastAPI, Request, Response
from starlette.requests import ClientDisconnect

from tranche.extender import wire_format
from tranche.extender.app import LARGEST_BODY, error_response, json_response
from tranche.kube.api.core_types import Pod
from tranche.kube.client.client import ApiClient, ApiError
from tranche.metrics.scheduler import Metrics
from tranche.runtime.request_body import read_body

ANSWER_SECONDS = 0.8
"""Time limit of the verb in seconds, below the ``httpTimeout`` of 1 s in scheduler-config.yaml."""


def add_bind(app: FastAPI, client: ApiClient, metrics: Metrics) -> None:
    """Add the bind verb to the application."""

    async def endpoint(request: Request) -> Response:
        try:
            body = await read_body(request, LARGEST_BODY)
            if body is None:
                return error_response(413, "the request body is too large")
            binding = wire_format.decode_binding(body)
        except wire_format.MalformedError as error:
            return error_response(400, str(error))
        except ClientDisconnect:
            return error_response(400, "the request body is incomplete")
        began = time.perf_counter()
        text = await bind(client, binding)
        metrics.observe_request("bind", time.perf_counter() - began, int(not text), int(bool(text)))
        return json_response(wire_format.BindResult(text))

    app.add_route("/bind", endpoint, methods=["POST"])


async def bind(client: ApiClient, binding: wire_format.Binding, seconds: float = ANSWER_SECONDS) -> str:
    """Bind a pod and return the error, or "" on success. A pod that is already bound to the node is a success."""
    path = f"/api/v1/namespaces/{binding.pod_namespace}/pods/{binding.pod_name}"
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": binding.pod_name, "namespace": binding.pod_namespace, "uid": binding.pod_uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": binding.node},
    }
    deadline = time.monotonic() + seconds
    try:
        await client.request("POST", f"{path}/binding", body=body, timeout=seconds)
    except ApiError as error:
        seconds_left = deadline - time.monotonic()
        bound = error.status == 409 and seconds_left > 0 and await _is_bound(client, path, binding, seconds_left)
        return "" if bound else str(error)
    return ""


async def _is_bound(client: ApiClient, path: str, binding: wire_format.Binding, seconds: float) -> bool:
    try:
        pod = msgspec.convert(await client.request("GET", path, timeout=seconds), Pod)
    except (ApiError, msgspec.ValidationError):
        return False
    return pod.metadata.uid == binding.pod_uid and pod.spec.node_name == binding.node
