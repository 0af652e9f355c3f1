"""What jobs use at each site, as amounts: GPU time, completed chunks, and bytes of copied data."""

from dataclasses import dataclass, field

from tranche.model import Site, Tier


@dataclass(slots=True)
class SiteUsage:
    """Amounts at one site."""

    gpu_seconds: float = 0.0
    """GPU time that workers held, from the openings of their windows to the ends of their pods."""
    trained_gpu_seconds: float = 0.0
    """Of these, in which they trained."""
    chunks: int = 0
    """Chunks that were completed there."""
    copied_bytes: float = 0.0
    """Of uploads to the site that were begun."""
    in_vain_bytes: float = 0.0
    """Of these, what no chunk trained from."""

    def add(
        self,
        *,
        gpu_seconds: float = 0.0,
        trained_gpu_seconds: float = 0.0,
        chunks: int = 0,
        copied_bytes: float = 0.0,
        in_vain_bytes: float = 0.0,
    ) -> None:
        """Add further amounts."""
        self.gpu_seconds += gpu_seconds
        self.trained_gpu_seconds += trained_gpu_seconds
        self.chunks += chunks
        self.copied_bytes += copied_bytes
        self.in_vain_bytes += in_vain_bytes


@dataclass(slots=True, eq=False)
class JobUse:
    """What one job has used, and what its copies were good for."""

    sites: dict[str, SiteUsage] = field(default_factory=dict)
    unused: dict[str, set[int]] = field(default_factory=dict)
    """By site: chunks of which a copy was begun, and from which no worker has trained yet."""
    there: dict[str, set[int]] = field(default_factory=dict)
    """By site: chunks of windows there that trained, so that their data need not be brought again."""
    counted: set[int] = field(default_factory=set)
    """Chunks whose completion was counted."""
    trained_at: dict[int, str] = field(default_factory=dict)
    """Where the other chunks were trained last."""

    def at(self, site: str) -> SiteUsage:
        """Amounts at the site, to be changed in place."""
        return self.sites.setdefault(site, SiteUsage())


def is_cloud(site: Site | None) -> bool:
    """Whether GPU time at a site is the cloud's: its tier says so, or its capacity is made on demand."""
    return site is not None and (site.tier is Tier.CLOUD or site.unlimited)
