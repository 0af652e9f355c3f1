"""The programs on docs/how-to/training-code.md: the first one trains, the others ask only for what exists."""

import ast
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import pytest

import tranche_worker
from support.doc_pages import ROOT, Block, blocks
from support.typed_commands import TRAINING_CODE, typed_by
from tranche_worker import Assignment, Session, checkpoints

PAGE = "docs/how-to/training-code.md"
PROGRAMS = [block for block in blocks(ROOT / PAGE) if block.language == "python"]
STUBS = "def train(chunk, batch): pass\ndef save(): pass\n"


def test_the_program_for_chunks_trains_every_batch_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {
        "JOB": "default/cats",
        "ATTEMPT": "1",
        "CHUNKS": "2,0",
        "CHUNK_COUNT": "3",
        "EPOCHS": "1",
        "BATCHES": "2",
        "CHECKPOINT_DIR": str(tmp_path),
        "TERMINATION_LOG": str(tmp_path / "log"),
    }
    for name, value in variables.items():
        monkeypatch.setenv(f"TRANCHE_{name}", value)
    seen: list[tuple[int, int] | str] = []
    names = {
        **vars(tranche_worker),
        "train": lambda chunk, batch: seen.append((chunk, batch)),
        "save": lambda: seen.append("saved"),
        "sys": __import__("sys"),
    }
    with pytest.raises(SystemExit) as left:
        exec(compile(PROGRAMS[0].text, "training-code.md", "exec"), names)
    assert left.value.code == tranche_worker.EXIT_DONE
    assert seen == [(2, 0), (2, 1), (0, 0), (0, 1), "saved"]
    assert json.loads((tmp_path / "log").read_text()) == {"2": 2, "0": 2}


def test_program_runs_without_cluster_as_the_page_says(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(STUBS + PROGRAMS[0].text)
    environment = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "worker")}
    typed = "set -e\n" + "\n".join([*typed_by(TRAINING_CODE, PAGE), "python train.py"])
    done = subprocess.run(
        ["sh", "-c", typed], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    saved = (tmp_path / "termination-log").read_text()
    assert json.loads(saved) == {"0": 10, "1": 10}
    assert f"`{saved}`" in (ROOT / PAGE).read_text(encoding="utf-8")


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_programs_use_existing_session_and_assignment_fields(program: Block) -> None:
    names = ("session", "mine")
    attributes = [
        (node.value.id, node.attr)
        for node in ast.walk(ast.parse(program.text))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in names
    ]
    assert attributes or "worker_init_fn" in program.text
    for name, attribute in attributes:
        assert hasattr(made(name), attribute), f"{name}.{attribute}"


def test_chunk_that_returns_to_an_earlier_pod_is_read_as_saved(tmp_path: Path) -> None:
    """Attempt 8 has trained the chunk until it was preempted, and attempt 3, which runs since before, gets it then."""
    (program,) = (block for block in PROGRAMS if "chunk-{chunk}" in block.text)
    for attempt, renewed, text in ((8, 0, b"first"), (3, 9, b"second")):
        mine = Assignment("a/b", attempt, (7,), 9, 1, 40, {}, tmp_path, renewed=renewed)
        names: dict[str, Any] = {"checkpoints": checkpoints, "mine": mine, "session": Session(mine), "chunk": 7}
        exec(compile(program.text, "training-code.md", "exec"), names | {"write": partial(put, text)}, names)
        assert names["path"].read_bytes() == text


def test_program_for_saved_chunks_trains_no_batch_twice(tmp_path: Path) -> None:
    """The node of chunk 2 was lost after its save of three mini-batches, of which the ledger has one."""
    (program,) = (block for block in PROGRAMS if "load(chunk)" in block.text)
    counts, seen = {2: 3, 0: 4}, []
    mine = Assignment(
        "a/b", 2, (2, 0, 1), 3, 1, 4, {2: 1}, tmp_path, grace_seconds=30.0, termination_log=tmp_path / "log"
    )
    names: dict[str, Any] = {
        "Session": Session,
        "assignment": lambda: mine,
        "load": lambda chunk: counts.get(chunk, 0),
        "save": counts.__setitem__,
        "train": lambda chunk, batch: seen.append((chunk, batch)),
    }
    exec(compile(program.text, "training-code.md", "exec"), names)
    assert seen == [(2, 3), (1, 0), (1, 1), (1, 2), (1, 3)]
    assert counts == {2: 4, 0: 4, 1: 4}
    assert names["session"].exit_code == tranche_worker.EXIT_DONE
    assert json.loads((tmp_path / "log").read_text()) == {"2": 4, "0": 4, "1": 4}


def put(text: bytes, file: BinaryIO) -> None:
    file.write(text)


def made(name: str) -> object:
    """One of them, for attributes that are set when it is made."""
    mine = Assignment(
        job="a/b",
        attempt=1,
        chunks=(),
        chunk_count=0,
        epochs=1,
        batches_per_chunk=1,
        resume={},
        checkpoint_directory=Path("/nowhere"),
    )
    return Session(mine) if name == "session" else mine
