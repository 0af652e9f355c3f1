"""Keeper of the report API's certificate: it writes the files that the server loads, and publishes the CA.

Every replica runs one. The certificates are in a Secret, which the first replica that finds them due renews; a write of
another replica makes its own fail, and it uses what that one wrote.
"""

import asyncio
import base64
import binascii
import logging
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from tranche.auth.report_certificate import CA_FILE, CERTIFICATE_FILE, KEY_FILE, renewed
from tranche.kube.client.client import ApiClient, ApiError

logger = logging.getLogger(__name__)

CHECK_SECONDS = 60.0
RETRY_SECONDS = 2.0
"""Delay of the next check after an error or another replica's write."""
CA_CONFIG_MAP = "tranche-reports-ca"
"""ConfigMap with the CA certificates, which the operator gives to training pods."""
_CORE = "/api/v1/namespaces/{}/{}/{}"


class CertificateKeeper:
    """Keeper of one Secret and of the ConfigMap with its CA; the chart creates both, empty."""

    def __init__(
        self,
        client: ApiClient,
        namespace: str,
        secret: str,
        hosts: Sequence[str],
        directory: Path,
    ) -> None:
        """Store the arguments; nothing is read before `run`.

        Args:
            client: Client of the API server, by whose clock the certificates are made: that of a node may be wrong.
            namespace: Namespace of the Secret and of the ConfigMap.
            secret: Name of the Secret.
            hosts: DNS names of the report API.
            directory: Directory for certificate and key, readable by this process only.
        """
        self._client = client
        self._secret = _CORE.format(namespace, "secrets", secret)
        self._hosts = hosts
        self._directory = directory
        self._publisher = CaPublisher(client, namespace)

    async def run(self) -> None:
        """Check the certificates forever."""
        while True:
            try:
                settled = await self.check()
            except ApiError as error:
                logger.warning("the certificate of the report API cannot be checked: %s", error)
                settled = False
            await asyncio.sleep(CHECK_SECONDS if settled else RETRY_SECONDS)

    async def check(self) -> bool:
        """Renew what is due, write the files and publish the CA; return False if another replica wrote meanwhile.

        Raises:
            ApiError: a request fails.
        """
        secret = await self._client.request("GET", self._secret)
        data = _decoded(secret.get("data") or {})
        fresh = renewed(data, self._hosts, datetime.fromtimestamp(self._client.server_time(), UTC))
        if fresh is not None:
            encoded = {name: base64.b64encode(text).decode() for name, text in fresh.items()}
            try:
                await self._client.request("PUT", self._secret, body={**secret, "data": encoded})
            except ApiError as error:
                if error.status == 409:
                    return False
                raise
            logger.info("the certificate of the report API has been renewed")
            data = fresh
        await self._publisher.publish(data[CA_FILE].decode())
        # The key first: a server that loads a certificate with the former key keeps the former pair.
        for name in (KEY_FILE, CERTIFICATE_FILE):
            _replace(self._directory / name, data[name])
        return True


class CaPublisher:
    """Publisher of the CA certificates."""

    def __init__(self, client: ApiClient, namespace: str) -> None:
        self._client = client
        self._path = _CORE.format(namespace, "configmaps", CA_CONFIG_MAP)

    async def publish(self, bundle: str) -> None:
        """Write the CA certificates to the ConfigMap if it has others.

        Raises:
            ApiError: a request fails.
        """
        config_map = await self._client.request("GET", self._path)
        if (config_map.get("data") or {}).get(CA_FILE) != bundle:
            await self._client.request("PUT", self._path, body={**config_map, "data": {CA_FILE: bundle}})

    async def follow(self, file: Path) -> None:
        """Publish the CA certificates of a mounted Secret forever; an administrator or cert-manager renews them."""
        while True:
            try:
                await self.publish(file.read_text(encoding="utf-8"))
            except (ApiError, OSError, UnicodeDecodeError) as error:
                logger.warning("the CA of the report API, %s, cannot be published: %s", file, error)
            await asyncio.sleep(CHECK_SECONDS)


def _decoded(data: Mapping[str, str]) -> dict[str, bytes]:
    """Decode the data of a Secret; what cannot be decoded is left out."""
    decoded: dict[str, bytes] = {}
    for name, text in data.items():
        try:
            decoded[name] = base64.b64decode(text, validate=True)
        except binascii.Error:
            continue
    return decoded


def _replace(path: Path, content: bytes) -> None:
    """Write a file atomically, for this user only, if its content changes."""
    if path.exists() and path.read_bytes() == content:
        return
    temporary = path.with_suffix(".new")
    temporary.unlink(missing_ok=True)
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
    temporary.replace(path)
