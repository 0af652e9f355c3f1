"""Writers of kubeconfig files, which are self-contained, so that they can be moved."""

import base64
import json
from collections.abc import Mapping
from pathlib import Path

from .certificate import Pair, write_secret


def write_with_certificate(path: Path, url: str, authority: bytes, user: str, pair: Pair) -> Path:
    """Write a kubeconfig for a user with a client certificate."""
    credentials = {"client-certificate-data": _text(pair.certificate), "client-key-data": _text(pair.key)}
    return _write(path, url, authority, user, credentials)


def write_with_token(path: Path, url: str, authority: bytes, user: str, token: str) -> Path:
    """Write a kubeconfig for a user with a bearer token."""
    return _write(path, url, authority, user, {"token": token})


def _write(path: Path, url: str, authority: bytes, user: str, credentials: Mapping[str, str]) -> Path:
    name = "tranche-testcluster"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": {"server": url, "certificate-authority-data": _text(authority)}}],
        "users": [{"name": user, "user": credentials}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
    }
    write_secret(path, json.dumps(config, indent=1).encode())
    return path


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()
