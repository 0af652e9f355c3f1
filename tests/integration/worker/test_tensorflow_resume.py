"""The state of the TensorFlow example, read by a job that continues another one."""

import os
import subprocess
from pathlib import Path

import pytest

from numpy_ps import chunks
from support.doc_pages import ROOT
from support.frameworks import python_of


def test_resume_directory_without_checkpoint_is_an_error(tmp_path: Path) -> None:
    """The job trained from the beginning, as if it had not named an earlier one."""
    try:
        python = python_of("tensorflow")
    except FileNotFoundError as error:
        pytest.skip(str(error))
    for name in ("own", "earlier"):
        (tmp_path / name).mkdir()
    chunks.stage(tmp_path / "data", 1)
    paths = os.pathsep.join(str(ROOT / path) for path in ("worker", "worker/examples"))
    variables = {"PATH": os.environ["PATH"], "PYTHONPATH": paths, "TF_CPP_MIN_LOG_LEVEL": "2"}
    variables |= {"TRANCHE_CHECKPOINT_DIR": str(tmp_path / "own"), "TRANCHE_RESUME_DIR": str(tmp_path / "earlier")}
    command = [str(python), "-m", "tensorflow_ps.states", str(tmp_path / "data"), "10"]
    read = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert f"there is no checkpoint in {tmp_path / 'earlier'}" in read.stderr
    assert read.returncode != 0
