"""Numbers of pods, windows or chunks by site or node, as words for events and log lines."""

from collections.abc import Mapping

MAX_PLACES = 8
"""Number of sites or nodes that a text names."""


def places_text(counts: Mapping[str, int], word: str = "at", others: str = "other sites") -> str:
    """Return such as "8 at cloud, 4 at edge-a", the largest number first.

    Args:
        counts: Numbers by place.
        word: Preposition before a place.
        others: Noun for the places beyond `MAX_PLACES`, which are counted together.
    """
    ranked = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    named = [f"{count} {word} {place}" for place, count in ranked[:MAX_PLACES]]
    if unnamed := ranked[MAX_PLACES:]:
        named.append(f"{sum(count for _, count in unnamed)} {word} {len(unnamed)} {others}")
    return ", ".join(named)
