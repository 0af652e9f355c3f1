"""``tranche demo``: options that are refused before a control plane starts."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from tranche.cli.main import main


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--slower", "nan"], "'nan' is not a finite number"),
        (["--slower", "0"], "0.0 is not in the range 1<=x<=100"),
        (["--policy", "nope"], "unknown policy 'nope'"),
        (["--directory", "FILE"], "is a file"),
        (["--picture", "."], "is a directory"),
    ],
)
def test_option_that_the_demo_cannot_use_is_one_line(arguments: list[str], message: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    result = CliRunner().invoke(main, ["demo", *(str(file) if word == "FILE" else word for word in arguments)])
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1), result.exception
    assert message in result.stderr
