"""Loss and cost of the robust rules of torch_gang over all-reduce: real PyTorch processes, of which one attacks.

``python benchmarks/gang_attack.py`` trains scikit-learn's digits in a gang of ``--members`` processes over gloo on this
machine, for each rule of spec.communication.aggregation without and with an attack: the last member sends -10 times its
gradient. The mean is that of DistributedDataParallel, as in torch_gang. It prints the losses, the processor time of a
batch over that of the mean, and the largest differences of parameters between members, and of the first aggregate from
that of a parameter server. PyTorch is installed by ``make examples``.
"""

import argparse
import json
import multiprocessing
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / part) for part in ("tests", "worker", "worker/examples")]

from numpy_ps import chunks  # noqa: E402 - in worker/examples
from numpy_ps.aggregation import RULES  # noqa: E402

ATTACK = -10.0
"""Factor of the attacker's gradient."""
BATCHES_PER_EPOCH = 6
PATIENCE = timedelta(minutes=10)
"""Longest time that a member waits for the others."""


def run(members: int, batches: int, seed: int) -> list[dict[str, Any]]:
    """Return the result of each rule without and with an attack, in the order of `RULES`.

    Raises:
        FileNotFoundError: PyTorch is not installed.
        RuntimeError: A member failed.
    """
    from support.frameworks import python_of

    with tempfile.TemporaryDirectory(prefix="tranche-attack-") as directory:
        chunks.stage(Path(directory), 1)
        command = [str(python_of("torch")), __file__, "--gang", directory]
        command += [f"--members={members}", f"--batches={batches}", f"--seed={seed}"]
        process = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    if process.returncode:
        raise RuntimeError(f"the gang ended with the exit code {process.returncode}")
    return [json.loads(line) for line in process.stdout.splitlines()]


def start(data: Path, members: int, batches: int, seed: int) -> int:
    """Start the members, and return the number of those that failed; they share the import of PyTorch."""
    import torch

    torch.set_num_threads(1)
    fork = multiprocessing.get_context("fork")
    started = [
        fork.Process(target=train, args=(data, rank, members, batches, seed), daemon=True) for rank in range(members)
    ]
    for member in started:
        member.start()
    for member in started:
        member.join(PATIENCE.total_seconds())
    return sum(member.exitcode != 0 for member in started)


def train(data: Path, rank: int, members: int, batches: int, seed: int) -> None:
    """Train as a member; member 0 prints each result as JSON."""
    from torch import distributed

    meeting = f"file://{data}/members"
    distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=members, timeout=PATIENCE)
    for rule, attack in product(RULES, (1.0, ATTACK)):
        result = _trained(data, batches, seed, rule, attack)
        if rank == 0:
            print(json.dumps(result), flush=True)
    distributed.destroy_process_group()


def _trained(data: Path, batches: int, seed: int, rule: str, attack: float) -> dict[str, Any]:
    import torch
    from torch import distributed
    from torch.nn.functional import cross_entropy
    from torch.nn.parallel import DistributedDataParallel

    from torch_gang import robust
    from torch_gang.states import load

    rank, size = distributed.get_rank(), distributed.get_world_size()
    state = load(data / "no checkpoint", batches, seed)
    x, y = (torch.from_numpy(array) for array in chunks.load(data, 0))
    network = DistributedDataParallel(state.network) if rule == "mean" else state.network
    factor = attack if rank == size - 1 else 1.0
    off_server, began = 0.0, time.process_time()
    for batch in range(batches):
        rows = chunks.rows_of_batch(len(y), 0, batch, BATCHES_PER_EPOCH)[rank::size]
        state.optimizer.zero_grad()
        (factor * cross_entropy(network(x[rows]), y[rows])).backward()
        if rule != "mean":
            before = (
                _gathered(_flat(parameter.grad for parameter in state.network.parameters())) if batch == 0 else None
            )
            weights = _gathered(torch.tensor([float(len(rows))], dtype=torch.float64)) if batch == 0 else None
            robust.aggregate(state.network.parameters(), len(rows), rule)
            if before is not None and weights is not None:
                aggregated = _flat(parameter.grad for parameter in state.network.parameters()).numpy()
                server = RULES[rule](before.numpy(), weights.numpy()[:, 0])
                off_server = float(abs(aggregated - server).max())
        state.optimizer.step()
    seconds = (time.process_time() - began) / batches
    with torch.no_grad():
        loss = float(cross_entropy(state.network(x), y))
        everywhere = _gathered(_flat(state.network.parameters()))
    return {
        "rule": rule,
        "attack": attack,
        "loss": loss,
        "processor_seconds_per_batch": seconds,
        "between_members": float((everywhere - everywhere[0]).abs().max()),
        "off_server": off_server,
    }


def _flat(tensors: Any) -> Any:
    import torch

    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


def _gathered(vector: Any) -> Any:
    """Return the vectors of all members as rows."""
    import torch
    from torch import distributed

    rows = [torch.empty_like(vector) for _ in range(distributed.get_world_size())]
    distributed.all_gather(rows, vector)
    return torch.stack(rows)


def main() -> None:
    """Train and print, or train as a member."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=5)
    parser.add_argument("--batches", type=int, default=240)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--gang", type=Path, help="for the program itself, under PyTorch: directory of the data")
    options = parser.parse_args()
    if options.gang is not None:
        sys.exit(start(options.gang, options.members, options.batches, options.seed))
    try:
        results = run(options.members, options.batches, options.seed)
    except FileNotFoundError as error:
        sys.exit(str(error))
    base = results[0]["processor_seconds_per_batch"]
    print(f"{'rule':<14}{'attack':>8}{'loss':>10}{'CPU / mean':>12}{'members apart':>15}{'off server':>12}")
    for result in results:
        attack = "none" if result["attack"] == 1.0 else f"{result['attack']:.0f}"
        ratio = result["processor_seconds_per_batch"] / base
        print(
            f"{result['rule']:<14}{attack:>8}{result['loss']:>10.4g}{ratio:>12.2f}"
            f"{result['between_members']:>15.1e}{result['off_server']:>12.1e}"
        )


if __name__ == "__main__":
    main()
