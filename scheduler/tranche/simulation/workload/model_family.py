"""Models of the gangs of a job log, with measured times on one node and on several.

Source: throughputs that Gavel's authors measured on V100 (github.com/stanford-futuredata/gavel, MIT licence). [I] The
measured extra time of a mini-batch on several nodes is read as a ring all-reduce over links of
`REFERENCE_BITS_PER_SECOND`, which the source does not state; it gives the size of the gradients, and so the time at
every topology level of any network. A job takes its logged duration at the narrowest level.
"""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files
from types import MappingProxyType

from tranche.estimate import LevelNetwork
from tranche.model import Job
from tranche.policies.seeded_choice import uniform

REFERENCE_BITS_PER_SECOND = 10e9
"""Capacity of the links between the nodes on which the throughputs were measured [I]: 10 Gbit/s Ethernet."""


@dataclass(frozen=True, slots=True)
class ModelFamily:
    """Model with a batch size."""

    name: str
    seconds: Mapping[int, tuple[float, float]]
    """Time of a mini-batch on one node and on several, by number of GPUs, in seconds."""

    def step_seconds(self, gpus: int) -> float:
        """Return the time of a mini-batch with all GPUs on one node, in seconds."""
        return self.seconds[self._measured(gpus)][0]

    def gradient_bits(self, gpus: int) -> float:
        """Return the bits whose ring all-reduce takes the measured extra time on several nodes; 0 for one GPU."""
        if gpus == 1:
            return 0.0
        count = self._measured(gpus)
        together, apart = self.seconds[count]
        return max(0.0, apart - together) * REFERENCE_BITS_PER_SECOND * count / (2 * (count - 1))

    def _measured(self, gpus: int) -> int:
        """Return the largest measured number of GPUs that is not above this one; the smallest if all are above."""
        return max((count for count in self.seconds if count <= gpus), default=min(self.seconds))


@lru_cache(maxsize=1)
def families() -> Mapping[str, ModelFamily]:
    """Return all families that were measured on one node and on several, by name."""
    text = files("tranche.simulation").joinpath("data", "model_families.csv").read_text()
    seconds: dict[str, dict[int, tuple[float, float]]] = {}
    for row in csv.DictReader(line for line in text.splitlines() if not line.startswith("#")):
        times = float(row["step_seconds"]), float(row["spread_step_seconds"])
        seconds.setdefault(row["model"], {})[int(row["gpus"])] = times
    return MappingProxyType({name: ModelFamily(name, times_by_gpus) for name, times_by_gpus in sorted(seconds.items())})


def with_families(jobs: Sequence[Job], models: Sequence[str], network: LevelNetwork, seed: int) -> list[Job]:
    """Return the same jobs, those of several GPUs with the mini-batches and gradients of a measured model.

    Args:
        jobs: Gangs, whose `step_seconds` are without communication.
        models: Model of each job; one that is not a family is replaced by a family drawn uniformly.
        network: Links of the cluster.
        seed: Seed of the draw.
    """
    by_name = families()
    names = tuple(by_name)
    changed = []
    for job, model in zip(jobs, models, strict=True):
        drawn = names[int(uniform(seed, job.uid, "model family") * len(names))]
        changed.append(_with_family(job, by_name.get(model, by_name[drawn]), network))
    return changed


def _with_family(job: Job, family: ModelFamily, network: LevelNetwork) -> Job:
    """Return the job with mini-batches of the family; they last as long as the job's at the narrowest level."""
    gpus = max(1, job.gpus) * job.chunks
    if gpus == 1:
        return job
    duration = job.batches_per_chunk_total * job.step_seconds
    batches = max(1, round(duration / family.step_seconds(gpus)))
    seconds = duration / batches
    bits = family.gradient_bits(gpus) * seconds / family.step_seconds(gpus)
    communicating = replace(job, gradient_bits=bits)
    compute = max(0.0, seconds - network.ring_seconds(communicating, 0))
    return replace(communicating, batches_per_chunk=batches, step_seconds=compute)
