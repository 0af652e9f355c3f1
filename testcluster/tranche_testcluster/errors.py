"""Exceptions whose text says what to do."""


class ClusterError(Exception):
    """The test cluster cannot do what was asked; the text says why, with the last log lines where there are any."""


class BuildError(ClusterError):
    """A binary is missing and could not be built or found."""
