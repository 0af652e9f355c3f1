"""Predictions: how long a mini-batch, a chunk or an upload takes, how fast workers are, how much work a job needs."""

from tranche.estimate.lessons import Lessons
from tranche.estimate.restarts import Restarts
from tranche.estimate.sizes import OVERRUN, Sizes, believed_total
from tranche.estimate.speeds import (
    NetworkPrior,
    batch_seconds,
    bits_per_second,
    link_between,
    transfer_seconds,
    upload_link,
)
from tranche.estimate.uploads import Ends, Uploads

__all__ = [
    "OVERRUN",
    "Ends",
    "Lessons",
    "NetworkPrior",
    "Restarts",
    "Sizes",
    "Uploads",
    "batch_seconds",
    "believed_total",
    "bits_per_second",
    "link_between",
    "transfer_seconds",
    "upload_link",
]
