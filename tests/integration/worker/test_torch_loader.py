"""A member of a PyTorch gang whose data are loaded by other processes, under torchrun, which is stopped."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from support.doc_pages import ROOT, blocks
from support.frameworks import python_of
from tranche_testcluster import free_port

PAGE = "docs/how-to/training-code.md"
PROGRAM = """
import sys
from torch import arange, distributed
from torch.utils.data import DataLoader, TensorDataset
from tranche_worker import Session, assignment, ignore_sigterm

distributed.init_process_group("gloo")
data = TensorDataset(arange(8.0).repeat(10**6))
session = Session(assignment(), gang=True)
with session:
    {loader}
    for step, _ in enumerate(loader):
        session.advanced(0.5)
        if session.stopping:
            break
        if step == 10:
            print("trains", flush=True)
    session.saved()
sys.exit(session.exit_code)
"""


def test_member_with_a_data_loader_saves_at_sigterm(tmp_path: Path) -> None:
    """The processes of the DataLoader got SIGTERM too, so that it raised an error in the training loop."""
    try:
        torchrun = python_of("torch").with_name("torchrun")
    except FileNotFoundError as error:
        pytest.skip(str(error))
    (block,) = (block for block in blocks(ROOT / PAGE) if "worker_init_fn" in block.text)
    (tmp_path / "train.py").write_text(PROGRAM.format(loader=block.text.strip()))
    values = {"JOB": "a/b", "ATTEMPT": 1, "CHUNKS": 0, "CHUNK_COUNT": 1, "EPOCHS": 1, "BATCHES": 1}
    values |= {"CHECKPOINT_DIR": tmp_path, "TERMINATION_LOG": tmp_path / "log"}
    variables = {f"TRANCHE_{name}": str(value) for name, value in values.items()}
    variables |= {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "worker"), "OMP_NUM_THREADS": "1"}
    command = [str(torchrun), "--master-port", str(free_port()), "train.py"]
    with subprocess.Popen(command, cwd=tmp_path, env=variables, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"trains\n"
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=120)
        finally:
            process.kill()
    assert json.loads((tmp_path / "log").read_text()) == {"0": 0.5}
