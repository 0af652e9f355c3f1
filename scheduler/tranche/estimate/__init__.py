"""Predictions: how long a mini-batch, a chunk or an upload takes."""

from tranche.estimate.speeds import NetworkPrior, batch_seconds, bits_per_second, transfer_seconds

__all__ = ["NetworkPrior", "batch_seconds", "bits_per_second", "transfer_seconds"]
