"""Log lines of our processes, as text and as JSON."""

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from tranche.runtime.log_output import LogSettings, log_to_stderr


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    """Give the root logger its handlers back."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers, root.level = handlers, level


def test_json_line_has_time_severity_component_and_fields(capsys: pytest.CaptureFixture[str]) -> None:
    log_to_stderr("planner", LogSettings(format="json"))
    logging.getLogger("tranche.x").info("%s: opens – 2", "ns/a", extra={"job": "ns/a", "sites": {"edge": 2}})
    logging.getLogger("tranche.x").debug("not at this level")
    (line,) = capsys.readouterr().err.splitlines()
    found = json.loads(line)
    at = datetime.fromisoformat(found.pop("time"))
    assert abs(at - datetime.now(UTC)) < timedelta(minutes=1)
    assert found == {
        "level": "INFO",
        "component": "planner",
        "logger": "tranche.x",
        "message": "ns/a: opens – 2",
        "job": "ns/a",
        "sites": {"edge": 2},
    }


def test_error_with_traceback_is_one_json_line(capsys: pytest.CaptureFixture[str]) -> None:
    log_to_stderr("operator", LogSettings(format="json"))
    try:
        raise ValueError("two\nlines")
    except ValueError:
        logging.getLogger("tranche.x").exception("failed")
    (line,) = capsys.readouterr().err.splitlines()
    assert "two\nlines" in json.loads(line)["exc_info"]


def test_text_line_names_severity_component_and_logger(capsys: pytest.CaptureFixture[str]) -> None:
    log_to_stderr("api", LogSettings("warning"))
    logging.getLogger("tranche.x").warning("attention", extra={"job": "ns/a"})
    logging.getLogger("tranche.x").info("not at this level")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(" WARNING api tranche.x attention")


def test_control_characters_in_a_text_line_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    log_to_stderr("planner", LogSettings())
    logging.getLogger("tranche.x").info("%s: – waits", "edge\n2026-01-01 ERROR forged\x1b[2J\u2028")
    err = capsys.readouterr().err
    assert err.endswith("edge\\n2026-01-01 ERROR forged\\x1b[2J\\u2028: – waits\n")
    assert err.count("\n") == 1


WITHOUT_FILES = """
import logging, resource
from tranche.runtime.log_output import LogSettings, log_to_stderr
log_to_stderr("planner", LogSettings())
resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
logging.getLogger("x").error("accept failed\\nsocket")
"""


def test_line_is_written_while_no_file_can_be_opened() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_FILES], capture_output=True, text=True, check=True)
    assert done.stderr.endswith("accept failed\\nsocket\n")
    assert "Logging error" not in done.stderr
