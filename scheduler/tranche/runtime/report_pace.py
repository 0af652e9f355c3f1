"""Pace of writes that only report, such as events, while pods start.

Such a write costs the API server about as much as the creation of a pod. If all that had waited for a minute were
written at once, they would delay the last pods of a burst that a slow control plane needs longer for.
"""

PATIENCE_SECONDS = 60.0
"""Waiting time of the oldest report up to which one report is written per gap."""
DOUBLING_SECONDS = 15.0
"""Further waiting time after which twice as many are written per gap, so that reports do not wait indefinitely for
starts that never end."""
MOST_DOUBLINGS = 6


def reports_per_gap(waited: float) -> int:
    """Return the number of reports to write per gap when the oldest has waited for this number of seconds."""
    doublings = (waited - PATIENCE_SECONDS) / DOUBLING_SECONDS
    return int(2.0 ** min(max(0.0, doublings), MOST_DOUBLINGS))
