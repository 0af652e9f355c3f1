"""``python -m tranche_testcluster build``: build the binaries. ``… up``: run a cluster until Ctrl-C.

``… run COMMAND``: run a command with ``KUBECONFIG`` set to a cluster that lives as long as the command.
"""

import argparse
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .binaries import binary_cache
from .cluster import Cluster
from .errors import ClusterError
from .scaling import Scaling


def main(arguments: list[str] | None = None) -> int:
    """Run one of the commands and return the exit code."""
    options = _parser().parse_args(arguments)
    try:
        if options.command == "build":
            for name, path in binary_cache.ensure(*options.names).items():
                _print_line(f"{name:<24} {path}")
        elif options.command == "run":
            return _run(options.words)
        else:
            _up(options)
    except ClusterError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tranche_testcluster", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    build = commands.add_parser("build", help="build the binaries that are missing and print where all of them are")
    build.add_argument("names", nargs="*", metavar="NAME", help=f"default: {', '.join(binary_cache.NAMES)}")
    run = commands.add_parser("run", help="run a command with a cluster of its own")
    run.add_argument("words", nargs=argparse.REMAINDER, metavar="COMMAND")
    up = commands.add_parser("up", help="run a cluster until Ctrl-C")
    up.add_argument("--sites", type=int, default=2, help="site-0, site-1, … (default: %(default)s)")
    up.add_argument("--nodes", type=int, default=2, help="nodes of each site (default: %(default)s)")
    up.add_argument("--gpus", type=int, default=4, help="GPUs of each node (default: %(default)s)")
    up.add_argument(
        "--cloud", metavar="SITE", help="further site, whose nodes come and go with the pods that request it"
    )
    up.add_argument("--cloud-gpus", type=int, default=8, help="per node of that site (default: %(default)s)")
    up.add_argument("--cloud-cpu", default="32", help="per node of that site (default: %(default)s)")
    up.add_argument("--cloud-memory", default="128Gi", help="per node of that site (default: %(default)s)")
    up.add_argument(
        "--cloud-start-seconds",
        type=float,
        default=5.0,
        help="seconds until a node for a waiting pod is ready (%(default)s)",
    )
    up.add_argument(
        "--cloud-idle-seconds",
        type=float,
        default=10.0,
        help="seconds until a node without pods is removed (%(default)s)",
    )
    up.add_argument(
        "--cloud-most-nodes", type=int, default=100, help="maximum number of its nodes (default: %(default)s)"
    )
    up.add_argument("--scheduler-config", type=Path, help="a KubeSchedulerConfiguration file")
    up.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="folder for logs and data, which is kept (default: temporary)"
    )
    return parser


def _up(options: argparse.Namespace) -> None:
    cloud = _scaling(options) if options.cloud else None
    config = options.scheduler_config.read_text() if options.scheduler_config else None
    with Cluster(options.keep) as cluster:
        for number in range(options.sites):
            cluster.add_site(f"site-{number}", nodes=options.nodes, gpus=options.gpus)
        cluster.start_scheduler(config)
        if cloud is not None:
            cluster.start_autoscaler(cloud)
        with _end_signals() as ends:
            _print_line(f"export KUBECONFIG={cluster.kubeconfig}")
            _print_line(f"API server {cluster.url}, logs in {cluster.directory / 'logs'}; Ctrl-C stops everything")
            ends.recv(1)


@contextmanager
def _end_signals() -> Iterator[socket.socket]:
    """Return a socket with a byte for each SIGINT and SIGTERM from now on, until the end of the process.

    The file descriptor of :func:`signal.set_wakeup_fd` has no moment between a check and a wait in which a signal is
    lost. The handlers remain: a second Ctrl-C does not interrupt the end of the cluster.
    """
    reader, writer = socket.socketpair()
    with reader, writer:
        writer.setblocking(False)
        signal.set_wakeup_fd(writer.fileno())
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        try:
            yield reader
        finally:
            signal.set_wakeup_fd(-1)


def _scaling(options: argparse.Namespace) -> Scaling:
    try:
        return Scaling(
            options.cloud,
            gpus=options.cloud_gpus,
            cpu=options.cloud_cpu,
            memory=options.cloud_memory,
            start_seconds=options.cloud_start_seconds,
            idle_seconds=options.cloud_idle_seconds,
            most_nodes=options.cloud_most_nodes,
        )
    except ValueError as error:
        raise ClusterError(str(error)) from None


def _run(words: list[str]) -> int:
    with Cluster() as cluster:
        environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
        return subprocess.run(words, env=environment, check=False).returncode  # noqa: S603 - the user's own command


def _print_line(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
