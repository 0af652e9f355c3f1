"""``tranche policies``."""

from click.testing import CliRunner

from tranche.cli.main import main
from tranche.policies import POLICIES


def test_every_policy_has_one_line_with_its_source() -> None:
    lines = CliRunner().invoke(main, ["policies"]).stdout.splitlines()
    assert [line.split()[0] for line in lines] == sorted(POLICIES)
    for line in lines:
        policy = POLICIES[line.split()[0]]
        assert line.endswith(policy.source)
        assert ("preemptive" in line.removesuffix(policy.source)) == policy.traits.preemptive
