"""Ends of a process of the scheduler: expected errors are messages, whether or not they come in groups."""

import click
import pytest
from click.testing import CliRunner

from tranche.cli import process_options
from tranche.cli.option_types import TOPOLOGY_LEVELS
from tranche.cli.planner import planner
from tranche.cli.process_options import run_process
from tranche.estimate import LevelNetwork
from tranche.kube.client.errors import ApiError, Unreachable
from tranche.live.planner_config import PlannerConfig
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


def test_process_without_cluster_says_how_to_name_one() -> None:
    message = "no cluster is configured: No configuration found: use --kubeconfig, or set KUBECONFIG"
    with pytest.raises(click.ClickException, match=f"^{message}$"):
        run(Unreachable("NoConfiguration", "No configuration found."))


@pytest.mark.parametrize("others", [[], [REFUSED]])
def test_unexpected_error_in_a_group_is_raised_as_it_is(others: list[Exception]) -> None:
    fault = ExceptionGroup("", [*others, KeyError("x")])
    with pytest.raises(ExceptionGroup) as raised:
        run(fault)
    assert raised.value is fault


@pytest.mark.parametrize(
    ("texts", "network"),
    [((), None), (("100G", "1.5M"), LevelNetwork((100e9, 1.5e6))), (("0",), "more than 0 bit/s"), (("x",), "quantity")],
)
def test_level_bandwidths_are_the_network_of_the_planner(
    texts: tuple[str, ...], network: LevelNetwork | str | None
) -> None:
    given: list[tuple[float, ...]] = []
    command = click.Command("planner", callback=lambda level_bandwidths: given.append(level_bandwidths))
    result = CliRunner().invoke(TOPOLOGY_LEVELS[1](command), [f"--level-bandwidth={text}" for text in texts])
    if isinstance(network, str):
        assert network in result.output
    else:
        assert PlannerConfig(level_bandwidths=given[0]).settings().level_network == network


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--share-weight", "research"), "'research' is not NAMESPACE=WEIGHT"),
        (("--share-weight", "=2"), "'=2' is not NAMESPACE=WEIGHT"),
        (("--estimate-seconds", "nan"), "'nan' is not a finite number"),
        (("--estimate-seconds", "-1"), "-1.0 is not in the range 0<=x<=1000000000"),
    ],
)
def test_option_of_the_planner_that_means_nothing_is_refused(words: tuple[str, ...], message: str) -> None:
    result = CliRunner().invoke(planner, [*words, "--planner-port", "0"])
    assert result.exit_code == 2
    assert message in result.output
