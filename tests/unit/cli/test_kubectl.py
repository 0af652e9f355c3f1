"""``kubectl tranche`` without a cluster: what its page says of commands and exit statuses, and its columns."""

import re
from pathlib import Path

from click.testing import CliRunner

from tranche.cli.kubectl import main
from tranche.cli.kubectl_tables import columns, sites_text

PAGE = (Path(__file__).resolve().parents[3] / "docs/how-to/kubectl-plugin.md").read_text()


def test_the_page_has_every_command_and_no_other() -> None:
    assert set(re.findall(r"^\| `kubectl tranche (\w+)", PAGE, re.M)) == set(main.commands)


def test_the_page_and_the_help_agree_on_exit_statuses() -> None:
    told = re.findall(r"^ +(\d)  ", CliRunner().invoke(main, ["--help"]).stdout, re.M)
    assert told == re.findall(r"^\| (\d) \|", PAGE, re.M)


def test_columns_fit_their_widest_cell_without_truncation() -> None:
    text = columns(["NAME", "WHY"], [["a-long-name", "x" * 300], ["b", ""]])
    assert text.splitlines() == ["NAME          WHY", f"a-long-name   {'x' * 300}", "b             -"]


def test_the_use_of_sites_is_a_row_for_each() -> None:
    used = [
        {"site": "cloud", "gpuSeconds": 5400, "chunks": 3, "copiedBytes": 4_500_000_000, "inVainBytes": 1_500_000_000},
        {"site": "edge-a", "gpuSeconds": 90, "chunks": 1, "copiedBytes": 0, "inVainBytes": 0},
    ]
    assert sites_text(used).splitlines() == [
        "",
        "SITE     GPU-HOURS   CHUNKS   COPIED GB   UNUSED GB",
        "cloud    1.50        3        4.50        1.50",
        "edge-a   0.03        1        0.00        0.00",
    ]
    assert sites_text([]) == ""


def test_missing_kubeconfig_gives_one_error_line_with_a_remedy() -> None:
    result = CliRunner().invoke(main, ["queue", "--kubeconfig", "/nowhere"])
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
    assert "use --kubeconfig or --context, or set KUBECONFIG" in result.stderr
