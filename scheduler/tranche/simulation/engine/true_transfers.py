"""True uploads, for links whose speed differs from the declared one."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tranche.estimate import upload_link
from tranche.planner import ChunkStaged, StageData
from tranche.state.cluster import ClusterState

LinkFactor = Callable[[str, str], float]
"""True over declared time of an upload between two sites."""


@dataclass(slots=True)
class TrueUploads:
    """Links in virtual time; uploads go one after the other, unless a link is dedicated."""

    factor: LinkFactor
    _busy: dict[tuple[str, str], float] = field(default_factory=dict)

    def send(self, cluster: ClusterState, instruction: StageData, now: float) -> Iterator[tuple[float, ChunkStaged]]:
        """Yield the completion time and the report of each copy that starts now."""
        job = cluster.jobs[instruction.job].job
        ends = (job.data_site or instruction.site, instruction.site)
        link = upload_link(cluster.network, cluster.sites, job, instruction.site)
        if link is None:  # the data are there
            for chunk in instruction.chunks:
                yield now, ChunkStaged(instruction.job, chunk, instruction.site, 0.0)
            return
        seconds = link.transfer_seconds(job.chunk_bytes) * self.factor(*ends)
        for chunk in instruction.chunks:
            begins = now if link.dedicated else max(now, self._busy.get(ends, now))
            self._busy[ends] = begins + seconds
            yield begins + seconds, ChunkStaged(instruction.job, chunk, instruction.site, seconds)
