"""Predictions: how long a mini-batch, a chunk or an upload takes, how fast workers are, how much work a job needs."""

from tranche.estimate.declared_size import DeclaredSizes
from tranche.estimate.forecast_error import ForecastErrors
from tranche.estimate.iteration_time import (
    NetworkPrior,
    batch_seconds,
    bits_per_second,
    link_between,
    transfer_seconds,
    upload_link,
)
from tranche.estimate.job_size import DECLARED_SIGMA, OVERRUN, UNKNOWN_SIGMA, Sizes, estimated_total
from tranche.estimate.level_network import USUAL_BITS_PER_SECOND, LevelNetwork
from tranche.estimate.link_corrections import Ends
from tranche.estimate.node_evidence import NodeEvidence
from tranche.estimate.restart_cost import CommonRestarts, Restarts
from tranche.estimate.speed_model import SpeedModel
from tranche.estimate.transfer_time import Uploads

__all__ = [
    "DECLARED_SIGMA",
    "OVERRUN",
    "UNKNOWN_SIGMA",
    "USUAL_BITS_PER_SECOND",
    "CommonRestarts",
    "DeclaredSizes",
    "Ends",
    "ForecastErrors",
    "LevelNetwork",
    "NetworkPrior",
    "NodeEvidence",
    "Restarts",
    "Sizes",
    "SpeedModel",
    "Uploads",
    "batch_seconds",
    "bits_per_second",
    "estimated_total",
    "link_between",
    "transfer_seconds",
    "upload_link",
]
