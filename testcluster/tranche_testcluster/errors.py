"""Exceptions whose text names the remedy."""


class ClusterError(Exception):
    """Error of the test cluster; the text gives the reason, with the last log lines where there are any."""


class BuildError(ClusterError):
    """Binary that is missing and could not be built or found."""
