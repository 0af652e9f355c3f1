"""``tranche policies``."""

import pytest
from click.testing import CliRunner

from tranche.cli.main import main
from tranche.policies import POLICIES
from tranche.policies.base import Policy
from tranche.policies.option import options_of


def test_every_policy_has_one_line_with_its_source() -> None:
    lines = CliRunner().invoke(main, ["policies"]).stdout.splitlines()
    assert [line.split()[0] for line in lines] == sorted(POLICIES)
    for line in lines:
        policy = POLICIES[line.split()[0]]
        assert line.endswith(policy.source)
        assert ("preemptive" in line.removesuffix(policy.source)) == policy.preempts


def test_a_named_policy_is_described_with_its_options() -> None:
    output = CliRunner().invoke(main, ["policies", "chunk"]).stdout
    assert output.startswith(f"chunk: {POLICIES['chunk'].source}")
    assert "preempts: yes; priority classes: yes; weights: yes" in output
    assert "aging (default 30)" in output
    assert "θ: a job that has waited θ times its ideal JCT" in " ".join(output.split())


@pytest.mark.parametrize("policy", POLICIES.values(), ids=lambda policy: policy.name)
def test_every_option_has_a_default_and_a_meaning(policy: Policy) -> None:
    assert [one.name for one in options_of(policy) if not (one.default and one.meaning)] == []


def test_unknown_policy_lists_the_known_ones() -> None:
    result = CliRunner().invoke(main, ["policies", "chunks"])
    assert result.exit_code == 2
    assert "'chunks' is not one of" in result.stderr
    assert result.stderr.count("\n") == 1
