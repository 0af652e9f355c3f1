"""Usage of sites by jobs: GPU time, completed chunks, and bytes of copied data."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TypeVar

from tranche.model import Site, Tier

Place = TypeVar("Place", bound=Hashable)


@dataclass(slots=True)
class SiteUsage:
    """Amounts at one site, or of one namespace at all sites."""

    gpu_seconds: float = 0.0
    """GPU-seconds that workers held, from the openings of their windows to the ends of their pods."""
    trained_gpu_seconds: float = 0.0
    """Part of these in which the workers trained."""
    chunks: int = 0
    """Number of chunks that were completed there."""
    copied_bytes: float = 0.0
    """Bytes of uploads to the site that were begun."""
    in_vain_bytes: float = 0.0
    """Part of these from which no chunk trained."""

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
    """Usage of one job, and which of its copies were used."""

    sites: dict[str, SiteUsage] = field(default_factory=dict)
    unused: dict[str, set[int]] = field(default_factory=dict)
    """Chunks of which a copy to the site was begun and no worker has trained yet, by site."""
    trained_chunks: dict[str, set[int]] = field(default_factory=dict)
    """Chunks of windows at the site that trained, so that their data need not be copied again, by site."""
    counted: set[int] = field(default_factory=set)
    """Chunks whose completion was counted."""
    trained_at: dict[int, str] = field(default_factory=dict)
    """Site at which each other chunk was trained last."""


def usage_of(usages: dict[Place, SiteUsage], place: Place) -> SiteUsage:
    """Return the usage at a place, to be changed in place; nothing so far if there is none."""
    usage = usages.get(place)
    if usage is None:
        usage = usages[place] = SiteUsage()
    return usage


def is_cloud(site: Site | None) -> bool:
    """Return whether GPU time at a site counts as the cloud's: its tier is Cloud, or it is unlimited."""
    return site is not None and (site.tier is Tier.CLOUD or site.unlimited)
