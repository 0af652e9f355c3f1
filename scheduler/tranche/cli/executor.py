"""Executors of a study: this process, processes on this machine, or a Dask cluster."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tranche.cli.errors import InputError

if TYPE_CHECKING:
    from tranche.simulation.executors import Pool

DASK_SECONDS = 5.0
"""Connection time-out of the Dask scheduler, in seconds."""


@contextmanager
def opened_pool(processes: int | None, dask: str | None) -> "Iterator[Pool]":
    """Open the pool that the options select.

    Raises:
        InputError: the Dask cluster cannot be reached, or it has no workers.
    """
    from tranche.simulation.executors import ProcessPool, SerialPool

    if dask is not None:
        with _dask_pool(dask) as pool:
            yield pool
    elif processes == 1:
        yield SerialPool()
    else:
        yield ProcessPool(processes)


@contextmanager
def _dask_pool(address: str) -> "Iterator[Pool]":
    from tranche.simulation.executors import LentPool

    try:
        from distributed import Client
    except ImportError:
        raise InputError("--dask requires the package distributed: pip install 'tranche[dask]'") from None
    try:
        client = Client(address, timeout=DASK_SECONDS, set_as_default=False)  # type: ignore[no-untyped-call]
    except (OSError, ValueError, TypeError, ImportError) as error:
        raise InputError(f"--dask {address}: no Dask scheduler responded within {DASK_SECONDS:g} s ({error})") from None
    with client:
        threads = sum(client.nthreads().values())  # type: ignore[no-untyped-call]
        if not threads:
            raise InputError(f"--dask {address}: the Dask cluster has no workers; start one with dask worker {address}")
        yield LentPool(client.get_executor(), threads)  # type: ignore[no-untyped-call]
