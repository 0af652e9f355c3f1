"""HTTPS server of an admission webhook, with the certificate of the test cluster."""

import base64
import json
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

Review = dict[str, Any]
Answer = Callable[[Review], dict[str, Any] | None]
"""Returns the response to the request of an AdmissionReview; None: the server responds with status 500."""

HANG_SECONDS = 3.0


def allow(request: Review) -> dict[str, Any]:
    return {"allowed": True}


def deny(request: Review) -> dict[str, Any]:
    """Deny without a status code, as Kyverno does; the API server then responds with 400."""
    return {"allowed": False, "status": {"message": "the registry cannot be asked whether the image is signed"}}


def deny_as_invalid(request: Review) -> dict[str, Any]:
    return {"allowed": False, "status": {"code": 422, "message": "required labels are missing"}}


def fail(request: Review) -> None:
    return None


def hang(request: Review) -> dict[str, Any]:
    """Answer after the webhook's timeout."""
    time.sleep(HANG_SECONDS)
    return {"allowed": True}


def inject_proxy(request: Review) -> dict[str, Any]:
    """Put a proxy before the other containers, as a mesh with `holdApplicationUntilProxyStarts` does."""
    proxy: Review = {
        "name": "mesh-proxy",
        "image": "proxy",
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
    }
    patch: list[Review] = [{"op": "add", "path": "/spec/containers/0", "value": proxy}]
    pod = request["object"]
    if pod["metadata"].get("annotations"):  # the annotation names the training container for the simulated kubelet
        name = pod["spec"]["containers"][0]["name"]
        patch.append({"op": "add", "path": "/metadata/annotations/kwok.tranche.dev~1trainer", "value": name})
    return {"allowed": True, "patchType": "JSONPatch", "patch": base64.b64encode(json.dumps(patch).encode()).decode()}


class Webhook:
    """Server on the loopback address; a context manager."""

    def __init__(self, folder: Path, answer: Answer) -> None:
        """Bind a port.

        Args:
            folder: Folder of the test cluster, which has certificate, key and authority.
            answer: Response to each request.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "server.crt", folder / "server.key")
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(answer))
        self._server.daemon_threads = True
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self._authority = base64.b64encode((folder / "ca.crt").read_bytes()).decode()
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop the server; the API server then cannot call the webhook."""
        self._server.shutdown()
        self._server.server_close()

    def configuration(self, name: str, selector: dict[str, Any], *, mutating: bool = False) -> dict[str, Any]:
        """Return a webhook configuration for the creation of the pods that a label selector matches."""
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}
        url = f"https://127.0.0.1:{self._server.server_address[1]}/"
        hook = {
            "name": f"{name}.example.com",
            "rules": [rule],
            "clientConfig": {"url": url, "caBundle": self._authority},
            "objectSelector": selector,
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "failurePolicy": "Fail",
            "timeoutSeconds": 1,
        }
        kind = f"{'Mutating' if mutating else 'Validating'}WebhookConfiguration"
        api = "admissionregistration.k8s.io/v1"
        return {"apiVersion": api, "kind": kind, "metadata": {"name": name}, "webhooks": [hook]}


def _handler(answer: Answer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10.0

        def handle(self) -> None:
            with suppress(OSError):  # the API server closes the connection of a call that timed out
                super().handle()

        def do_POST(self) -> None:
            review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            response = answer(review["request"])
            if response is None:
                self.send_error(500)
                return
            body = {**review, "request": None, "response": {"uid": review["request"]["uid"], **response}}
            text = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
            pass

    return Handler
