"""Decoding of Sites, also of those with values that only a newer release knows.

The nodes of such a site stay its nodes: they would belong to no site otherwise, and take no pods.
"""

from tranche.kube.api.resources import SiteObject
from tranche.kube.api.unknown_values import decode


class UnreadableSite(SiteObject):
    """A Site without the values that this release does not know."""

    problem: str
    """The first of these values, and what is wrong with it."""


def decode_new_site(raw: bytes) -> SiteObject:
    """Decode a Site of which no version is known; an `UnreadableSite` if only optional fields are unknown.

    Raises:
        ValueError: anything else cannot be decoded.
    """
    return decode(raw, SiteObject, UnreadableSite, "spec", "status")
