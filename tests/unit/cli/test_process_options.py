"""Ends of a process of the scheduler: expected errors are messages, whether or not they come in groups."""

import click
import pytest

from tranche.cli import process_options
from tranche.cli.process_options import run_process
from tranche.kube.client.errors import ApiError
from tranche.runtime.log_output import LogSettings

REFUSED = ApiError(401, "Unauthorized", "no valid token")


@pytest.fixture(autouse=True)
def _plain_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_options, "end_with_parent", lambda: None)
    monkeypatch.setattr(process_options, "log_to_stderr", lambda *_: None)


def run(fault: Exception) -> None:
    async def main(_: None) -> None:
        raise fault

    run_process("extender", LogSettings("info", "text"), main)


@pytest.mark.parametrize("fault", [REFUSED, ExceptionGroup("", [ExceptionGroup("", [REFUSED])])])
def test_expected_error_of_a_process_is_a_message(fault: Exception) -> None:
    with pytest.raises(click.ClickException, match="no valid token"):
        run(fault)


@pytest.mark.parametrize("others", [[], [REFUSED]])
def test_unexpected_error_in_a_group_is_raised_as_it_is(others: list[Exception]) -> None:
    fault = ExceptionGroup("", [*others, KeyError("x")])
    with pytest.raises(ExceptionGroup) as raised:
        run(fault)
    assert raised.value is fault
