"""``tranche presets``."""

from click.testing import CliRunner

from tranche.cli.main import main
from tranche.simulation.job_log import LAYOUTS
from tranche.simulation.workload.presets import PRESETS


def test_all_presets_and_layouts_are_listed() -> None:
    listed = [line.split()[0] for line in CliRunner().invoke(main, ["presets"]).stdout.splitlines()]
    assert {*PRESETS, *LAYOUTS} - {"auto"} <= set(listed)
