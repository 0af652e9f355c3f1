"""``tranche scheduler``: extender, planner and API on one machine, as three supervised processes."""

import asyncio
import os
import secrets
import socket
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import click

from tranche.cli import process_options as common
from tranche.cli.option_types import GPU, Finite
from tranche.planner_api.messages import KEY_VARIABLE
from tranche.runtime.log_output import Format, Level, LogSettings, log_to_stderr
from tranche.runtime.parent_process import end_with_parent
from tranche.runtime.supervisor import ChildError, supervise

OF_PROCESS = {
    name: common.parameters(*groups, common.KUBECONFIG, common.LOG)
    for name, groups in {
        "extender": (common.EXTENDER, GPU),
        "planner": (common.PLANNER, common.METRICS, GPU, common.LEASE_NAMESPACE),
        "api": (common.API, GPU, common.LEASE_NAMESPACE),
    }.items()
}
"""Parameter names of the options that each process receives."""


@dataclass(frozen=True, slots=True)
class ShadowOptions:
    """Values of the options of shadow mode."""

    directory: Path | None
    decide_seconds: float
    replay_seconds: float


@click.command()
@common.options(
    common.KUBECONFIG,
    common.EXTENDER,
    common.API,
    common.METRICS,
    click.option(
        "--api-metrics-port",
        type=common.PORT,
        help="Port for /healthz, /readyz and /metrics of the API process [default: off].",
    ),
    common.PLANNER,
    common.LEASE_NAMESPACE,
    GPU,
    click.option(
        "--shadow",
        is_flag=True,
        help="Shadow mode: write nothing to the cluster; record what other schedulers do and what tranche would do.",
    ),
    click.option(
        "--shadow-dir",
        type=click.Path(exists=True, file_okay=False, writable=True, path_type=Path),
        help="Directory for the records of shadow mode [default: in memory].",
    ),
    click.option("--shadow-decide-seconds", default=60, show_default=True, type=Finite(0.1, 10**6), hidden=True),
    click.option(
        "--shadow-replay-seconds",
        default=3600,
        show_default=True,
        type=Finite(0.1, 10**7),
        help="Seconds between two comparisons in shadow mode.",
    ),
    common.LOG,
)
def scheduler(
    shadow: bool,
    shadow_dir: Path | None,
    shadow_decide_seconds: float,
    shadow_replay_seconds: float,
    api_metrics_port: int | None,
    log_level: Level,
    log_format: Format,
    **options: object,
) -> None:
    """Run extender, planner and API on one machine.

    Each is a process of its own (`tranche extender`, `tranche planner`, `tranche api`), which is started again when it
    ends. The Helm chart runs them as containers instead.
    """
    log = LogSettings(log_level, log_format)
    if shadow:
        _run_shadow(options, log, ShadowOptions(shadow_dir, shadow_decide_seconds, shadow_replay_seconds))
        return
    options |= {"log_level": log_level, "log_format": log_format}
    commands = {name: command_line(name, options) for name in OF_PROCESS}
    commands["planner"] += ["--identity", f"{socket.gethostname()}_{os.getpid()}"]
    if api_metrics_port is not None:
        commands["api"] += ["--metrics-host", str(options["metrics_host"]), "--metrics-port", str(api_metrics_port)]
    if options["report_port"] is None and options["page_port"] is None:
        del commands["api"]
    environment = {KEY_VARIABLE: secrets.token_urlsafe(32), **os.environ}
    end_with_parent()
    log_to_stderr("scheduler", log)
    try:
        asyncio.run(common.until_signal(supervise(commands, environment)))
    except (ExceptionGroup, ChildError) as fault:
        error = common.expected_cause(fault, ChildError)
        if not isinstance(error, ChildError):
            raise
        sys.exit(error.status if error.status > 0 else 1)


def command_line(process: str, options: Mapping[str, object]) -> list[str]:
    """Return the command line of one process.

    Args:
        process: extender, planner or api.
        options: Values of the options of `tranche scheduler`, by parameter name.
    """
    values = [(name, options[name]) for name in OF_PROCESS[process]]
    return [sys.executable, "-m", "tranche", process, *(word for option in values for word in _words(*option))]


def _words(name: str, value: object) -> Iterator[str]:
    """Return an option as words of a command line."""
    flag = f"--{name.replace('_', '-')}"
    if name == "share_weights" and isinstance(value, Mapping):
        for namespace, weight in value.items():
            yield from ("--share-weight", f"{namespace}={weight}")
    elif name == "gpu_speeds" and isinstance(value, Mapping):
        for kind, speed in value.items():
            yield from ("--gpu-speed", f"{kind}={speed}")
    elif isinstance(value, tuple):  # --report-tls-host
        for item in value:
            yield f"{flag.removesuffix('s')}={item}"
    elif isinstance(value, bool):
        if value:
            yield flag
    elif value is not None:
        yield f"{flag}={value}"


def _run_shadow(options: Mapping[str, object], log: LogSettings, shadow: ShadowOptions) -> None:
    """Run shadow mode, in this process."""
    from tranche.cli.shadow import ShadowProcess

    process = ShadowProcess(options, shadow.directory, (shadow.decide_seconds, shadow.replay_seconds))
    process.run(log)
