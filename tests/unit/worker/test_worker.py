import json
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest

from tranche.kube.api.core_types import Pod
from tranche.kube.convert.pod_state import termination_progress
from tranche_worker import assignment, report

ENVIRONMENT = {
    "TRANCHE_JOB": "default/mnist",
    "TRANCHE_ATTEMPT": "7",
    "TRANCHE_CHUNKS": "5,0",
    "TRANCHE_CHUNK_COUNT": "9",
    "TRANCHE_EPOCHS": "2",
    "TRANCHE_BATCHES": "10",
    "TRANCHE_RESUME": "5:12",
    "TRANCHE_CHECKPOINT_DIR": "/checkpoint",
}


def test_a_worker_resumes_each_chunk_where_the_ledger_says() -> None:
    mine = assignment(ENVIRONMENT)
    assert (mine.chunks, mine.attempt, mine.batches) == ((5, 0), 7, 20)
    assert list(mine.remaining(5)) == list(range(12, 20))
    assert list(mine.remaining(0)) == list(range(20))


def test_fraction_of_a_batch_does_not_skip_the_batch() -> None:
    member = assignment({**ENVIRONMENT, "TRANCHE_CHUNKS": "5", "TRANCHE_BATCHES": "1", "TRANCHE_RESUME": "5:0.375"})
    assert list(member.remaining(5)) == [0, 1]


def test_process_without_assignment_raises_missing_variable() -> None:
    with pytest.raises(KeyError, match=r"not set: TRANCHE_JOB, .*; this process does not run in a pod"):
        assignment({})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ATTEMPT", ""),
        ("CHUNKS", "0-3"),
        ("EPOCHS", "two"),
        ("BATCHES", "1e3"),
        ("RESUME", "5:12,0"),
        ("GRACE_SECONDS", "30s"),
        ("COMMUNICATION", "{"),
    ],
)
def test_variable_that_cannot_be_read_is_named(name: str, text: str) -> None:
    with pytest.raises(ValueError, match=f"TRANCHE_{name}='{text}' cannot be read: "):
        assignment({**ENVIRONMENT, f"TRANCHE_{name}": text})


def test_the_report_is_the_json_that_the_planner_reads(tmp_path: Path) -> None:
    report({5: 20, 0: 3}, tmp_path / "log")
    assert json.loads((tmp_path / "log").read_text()) == {"5": 20, "0": 3}


def test_report_of_scalars_of_an_array_library_is_readable(tmp_path: Path) -> None:
    report({np.int64(5): np.int64(20), 0: np.float32(0.5)}, tmp_path / "log")  # type: ignore[dict-item]
    assert (tmp_path / "log").read_text() == '{"5":20,"0":0.5}'


def test_report_into_a_full_disk_keeps_the_former_one(tmp_path: Path) -> None:
    """A file that is truncated first loses its content if the disk has no room for the new one."""
    path, script = tmp_path / "log", tmp_path / "full.py"
    report({5: 20, 0: 3}, path)
    script.write_text(
        "import resource, signal, sys\nfrom pathlib import Path\nfrom tranche_worker import report\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nresource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
        "report({5: 21, 0: 3}, Path(sys.argv[1]))\n"
    )
    full = subprocess.run([sys.executable, str(script), str(path)], capture_output=True, text=True, check=False)
    assert "File too large" in full.stderr
    assert read(path) == {5: 20, 0: 3}
    report({5: 1}, path)
    assert path.read_text() == '{"5":1}'


def read(path: Path) -> dict[int, float] | None:
    """Return what the scheduler reads of a message, of which the kubelet keeps the last 4 KiB."""
    kept = path.read_bytes()[-4096:].decode()
    state = {"terminated": {"exitCode": 143, "message": kept}}
    status = {"phase": "Failed", "containerStatuses": [{"name": "m", "state": state}]}
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "m"}]}, "status": status}
    return termination_progress(msgspec.convert(pod, Pod))


def test_message_of_many_chunks_fits_into_four_kibibytes(tmp_path: Path) -> None:
    batches: dict[int, float] = dict.fromkeys(range(1000, 1540), 250)
    report({**batches, 1540: 17, 1541: 0}, tmp_path / "log")
    assert read(tmp_path / "log") == {**batches, 1540: 17}


def test_message_of_odd_counts_fits_into_four_kibibytes(tmp_path: Path) -> None:
    done: dict[int, float] = dict.fromkeys(range(0, 2000, 2), 1000000000.0)
    begun = {chunk: chunk / 7 for chunk in range(1, 2000, 2)}
    report(done | begun, tmp_path / "log")
    assert (tmp_path / "log").stat().st_size <= 4096
    known = read(tmp_path / "log")
    assert known
    assert known.items() <= (done | begun).items()
    assert sum(known.values()) > 0.7 * sum(done.values()), "what counts most stays"
