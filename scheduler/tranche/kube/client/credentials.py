"""API server address and credentials, read with the kubernetes package."""

import asyncio
import logging
import os
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

import yaml
from kubernetes import client, config
from kubernetes.client.rest import should_bypass_proxies

from tranche.kube.client.errors import Unreachable

REFRESH_SECONDS = 60.0
"""Age at which a token is read again, in seconds: projected tokens and tokens of exec plugins expire."""

log = logging.getLogger(__name__)


class Credentials:
    """Address, TLS context and headers of one cluster. Blocking calls run in a thread."""

    def __init__(
        self, kubeconfig: str | None, clock: Callable[[], float] = time.monotonic, context: str | None = None
    ) -> None:
        self._kubeconfig = kubeconfig
        self._context_name = context
        self._clock = clock
        self._lock = asyncio.Lock()
        self._configuration: Any = None
        self._context: ssl.SSLContext | None = None
        self._headers: dict[str, str] = {}
        self._read_at = 0.0

    @classmethod
    async def load(cls, kubeconfig: str | None = None, context: str | None = None) -> Self:
        """Read the given kubeconfig, else ``$KUBECONFIG``, else the pod's service account, else ``~/.kube/config``.

        Args:
            kubeconfig: File, or files separated by colons.
            context: Context of the kubeconfig; default: its current context.

        Raises:
            Unreachable: none of them can be read, or the context does not exist.
        """
        credentials = cls(kubeconfig, context=context)
        await credentials.renew()
        return credentials

    @property
    def host(self) -> str:
        """Return the URL of the API server, without a trailing slash."""
        return str(self._configuration.host).rstrip("/")

    @property
    def connection(self) -> dict[str, Any]:
        """Return the keyword arguments of aiohttp requests: TLS context, server name to verify, and proxy."""
        arguments: dict[str, Any] = {}
        if self._context is not None:
            arguments["ssl"] = self._context
            arguments["server_hostname"] = self._configuration.tls_server_name
        proxy = self._configuration.proxy
        if proxy and not should_bypass_proxies(self.host, no_proxy=self._configuration.no_proxy or ""):
            arguments["proxy"] = proxy
            arguments["proxy_headers"] = self._configuration.proxy_headers
        return arguments

    async def headers(self) -> dict[str, str]:
        """Return the authorization header, at most `REFRESH_SECONDS` old; empty with client certificates."""
        if self._configuration.refresh_api_key_hook is not None and self._stale():
            async with self._lock:
                if self._stale():
                    await self._refresh()
        return self._headers

    async def renew(self) -> None:
        """Read the configuration again, for example after a 401.

        Raises:
            Unreachable: the configuration cannot be read or is invalid.
        """
        async with self._lock:
            try:
                self._configuration = await asyncio.to_thread(_configure, self._kubeconfig, self._context_name)
                self._context = await asyncio.to_thread(_context, self._configuration)
                await self._refresh()
            except (config.ConfigException, OSError, ValueError) as error:
                raise Unreachable("NoConfiguration", str(error)) from error

    def _stale(self) -> bool:
        return self._clock() - self._read_at >= REFRESH_SECONDS

    async def _refresh(self) -> None:
        self._read_at = self._clock()
        try:
            key = await asyncio.to_thread(
                self._configuration.get_api_key_with_prefix, "BearerToken", alias="authorization"
            )
        except (config.ConfigException, OSError, ValueError) as error:
            log.warning("the token file cannot be read again; the previous token stays in use: %s", error)
            return
        self._headers = {"Authorization": key.strip()} if key else {}


def uses_service_account(kubeconfig: str | None, context: str | None) -> bool:
    """Return whether no kubeconfig is given and the process runs in a pod."""
    in_cluster = "KUBERNETES_SERVICE_HOST" in os.environ and os.path.exists(
        config.incluster_config.SERVICE_TOKEN_FILENAME
    )
    return kubeconfig is None and context is None and "KUBECONFIG" not in os.environ and in_cluster


def chosen_file(kubeconfig: str | None) -> str | None:
    """Return the kubeconfig from the argument or the current environment, which the package reads only at import."""
    return kubeconfig or os.environ.get("KUBECONFIG")


@contextmanager
def reading(file: str | None) -> Iterator[None]:
    """Convert the errors with which the package reads a file that is no kubeconfig.

    Raises:
        ConfigException: the content is not YAML, or not of the form of a kubeconfig.
    """
    try:
        yield
    except (yaml.YAMLError, AttributeError, LookupError, TypeError, UnicodeError) as error:
        cause = f": {error}" if isinstance(error, yaml.YAMLError) else ""
        raise config.ConfigException(f"{file or 'the file'} is not a kubeconfig{cause}") from error


def _configure(kubeconfig: str | None, context: str | None = None) -> Any:
    configuration = client.Configuration()
    if uses_service_account(kubeconfig, context):
        config.load_incluster_config(configuration)  # type: ignore[no-untyped-call]
    else:
        file = chosen_file(kubeconfig)
        if file and not any(os.path.exists(os.path.expanduser(part)) for part in file.split(os.pathsep)):
            raise config.ConfigException(f"the kubeconfig {file} does not exist")
        with reading(file):
            config.load_kube_config(  # type: ignore[no-untyped-call]
                config_file=file, context=context, client_configuration=configuration, persist_config=False
            )
    return configuration


def _context(configuration: Any) -> ssl.SSLContext | None:
    if not str(configuration.host).startswith("https"):
        return None
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    # Python 3.13 rejects cluster CAs without an authority key identifier; other clients accept them.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    return context
