"""Limit of open files of this process."""

import resource

MAX_OPEN_FILES = 65_536
"""Limit to set, above the need of any process of tranche; some systems allow a thousand million."""
RESERVED = 300
"""Open files that a process keeps for its watches and its requests, for probes, and for connections that two servers
accept at once before they close those above their limits; the rest is for connections to its servers."""


def raise_file_limit() -> int:
    """Raise the soft limit of open files towards the hard limit, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(MAX_OPEN_FILES, hard)
    if soft == resource.RLIM_INFINITY or soft >= target:
        return MAX_OPEN_FILES if soft == resource.RLIM_INFINITY else soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
    return target
