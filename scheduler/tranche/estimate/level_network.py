"""Time of communication between the workers of a job by the topology level that they share, without contention.

Source: ours [I]. Workers that share a topology level and no narrower one communicate over the links of that level. A
ring all-reduce of q bits over n GPUs takes ``2 (n - 1) / n * q / b``, and the exchange of q bits with a parameter
server ``2 q / b``, with b the capacity of the slowest link on the way. So b of a level is the least capacity of the
level and of all narrower ones, and workers that move to a narrower level never become slower.
Worked numbers: docs/explanation/network-model.md.
"""

from dataclasses import dataclass

from tranche.model import Job

USUAL_BITS_PER_SECOND = (300e9, 100e9, 10e9, 1e9)
"""Capacities to assume within a node, a rack and a site, and on the WAN, in bit/s [I]."""


@dataclass(frozen=True, slots=True)
class LevelNetwork:
    """Capacities of the links between workers, by topology level."""

    bits_per_second: tuple[float, ...]
    """Capacity of a link of each level in bit/s, narrowest level first, with that of the WAN at the end."""

    def __post_init__(self) -> None:
        if not self.bits_per_second or min(self.bits_per_second) <= 0:
            raise ValueError("a network model needs a capacity above 0 bit/s for each topology level")

    def slowest(self, level: int) -> float:
        """Return b between workers that share this level and no narrower one, in bit/s."""
        return min(self.bits_per_second[: level + 1])

    def ring_seconds(self, job: Job, level: int) -> float:
        """Return the time of the all-reduce of one mini-batch over all GPUs of the job, in seconds.

        Args:
            job: Job without parameter servers; the chunks of a job that is not a gang train without each other.
            level: Narrowest topology level that all of its workers share.
        """
        gpus = max(1, job.gpus) * (job.chunks if job.is_gang else 1)
        if not job.gradient_bits or gpus == 1:
            return 0.0
        return 2 * (gpus - 1) / gpus * job.gradient_bits / self.slowest(level)
