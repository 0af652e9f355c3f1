"""Limits of a described cluster, and the error for descriptions that are not valid."""

MAX_NODES = 100_000
MAX_GPUS_PER_NODE = 100_000
MAX_GPUS = 1_000_000
"""Maximum number of GPUs of all nodes, because each has a queue of its own."""


class ClusterError(ValueError):
    """Invalid description of a cluster; the text is one line that names file, field and allowed values."""
