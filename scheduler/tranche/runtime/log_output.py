"""Log lines of a process on standard error, as text or as JSON."""

import logging
import sys
from dataclasses import dataclass
from typing import Literal, get_args

from pythonjsonlogger.core import RESERVED_ATTRS
from pythonjsonlogger.json import JsonFormatter

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["text", "json"]
LEVELS: tuple[str, ...] = get_args(Level)
FORMATS: tuple[str, ...] = get_args(Format)
KOPF_ATTRIBUTES = ("k8s_ref", "k8s_skip", "settings")
"""Attributes that Kopf adds to its records for its own formatter."""


@dataclass(frozen=True, slots=True)
class LogSettings:
    """Severity and form of the log lines of a process."""

    level: Level = "info"
    """Minimum severity of log lines."""
    format: Format = "text"
    """Text, or one JSON object for each line."""


def log_to_stderr(component: str, settings: LogSettings) -> None:
    """Log to standard error, one line for each record; a traceback follows a line of text.

    A line of JSON has the fields `time` (RFC 3339), `level`, `component`, `logger` and `message`, and those that its
    record has in addition, such as `job`.

    Args:
        component: Name of the process, such as planner.
        settings: Severity and form.
    """
    handler = logging.StreamHandler(sys.stderr)
    if settings.format == "json":
        handler.setFormatter(
            JsonFormatter(
                "{levelname}{name}{message}",
                style="{",
                rename_fields={"levelname": "level", "name": "logger"},
                static_fields={"component": component},
                timestamp="time",
                reserved_attrs=(*RESERVED_ATTRS, *KOPF_ATTRIBUTES),
                json_ensure_ascii=False,
            )
        )
    else:
        handler.setFormatter(_LineFormatter(f"%(asctime)s %(levelname)s {component} %(name)s %(message)s"))
    logging.basicConfig(level=settings.level.upper(), handlers=[handler], force=True)
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)


class _LineFormatter(logging.Formatter):
    """Formatter that escapes control characters, because a message may quote what a user has written."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        """Return the line of a record."""
        line = super().formatMessage(record)
        return line if line.isprintable() else "".join(map(_escaped, line))


def _escaped(character: str) -> str:
    # A codec would be imported here, which fails while all file descriptors are in use: the moment to log it.
    return character if character.isprintable() else ascii(character)[1:-1]
