"""Ends of a process of the scheduler: expected errors are messages, whether or not they come in groups."""

import click
import pytest

from tranche.cli import process_options
from tranche.cli.process_options import raise_cause, run_process
from tranche.kube.client.errors import ApiError
from tranche.runtime.log_output import LogSettings

REFUSED = ApiError(401, "Unauthorized", "no valid token")


@pytest.mark.parametrize("fault", [REFUSED, ExceptionGroup("", [ExceptionGroup("", [REFUSED])])])
def test_expected_error_of_a_process_is_a_message(fault: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(_: None) -> None:
        raise fault

    monkeypatch.setattr(process_options, "end_with_parent", lambda: None)
    monkeypatch.setattr(process_options, "log_to_stderr", lambda *_: None)
    with pytest.raises(click.ClickException, match="no valid token"):
        run_process("extender", LogSettings("info", "text"), main)


def test_unexpected_error_in_a_group_is_raised_as_it_is() -> None:
    fault = ExceptionGroup("", [KeyError("x")])
    with pytest.raises(ExceptionGroup) as raised:
        raise_cause(fault, ValueError)
    assert raised.value is fault
