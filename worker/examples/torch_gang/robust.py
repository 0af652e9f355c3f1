"""Robust rules for the gradients of a PyTorch gang, in place of the mean of DistributedDataParallel.

The rules, and the all-reduce by segments, are those of `numpy_ps`; torch.distributed only carries the segments. PyTorch
is imported when gradients are exchanged.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from numpy_ps.all_reduce import reduce_segments
from numpy_ps.models import Array


def aggregate(parameters: Iterable[Any], weight: float, rule: str) -> None:
    """Replace the gradients of all parameters by the aggregate of those of all members.

    Args:
        parameters: Parameters of the network with their gradients on a CPU, equal in all members.
        weight: Weight of this member: the samples of its part of the batch.
        rule: Name of the rule, as in spec.communication.aggregation.
    """
    import torch
    from torch import distributed

    gradients = [parameter.grad for parameter in parameters]
    flat = torch.cat([gradient.reshape(-1) for gradient in gradients]).double().numpy()
    whole = reduce_segments(flat, weight, rule, distributed.get_rank(), distributed.get_world_size(), _exchange)
    parts = torch.from_numpy(whole).split([gradient.numel() for gradient in gradients])
    for gradient, part in zip(gradients, parts, strict=True):
        gradient.copy_(part.view_as(gradient))


def _exchange(outgoing: Mapping[int, Array], lengths: Mapping[int, int]) -> dict[int, Array]:
    """Send one vector to each peer and receive one of known length from each."""
    import torch
    from torch import distributed

    received = {peer: torch.empty(length, dtype=torch.float64) for peer, length in lengths.items()}
    sent = {peer: torch.from_numpy(np.ascontiguousarray(vector)) for peer, vector in outgoing.items()}
    works = [distributed.isend(vector, peer) for peer, vector in sent.items()]
    works += [distributed.irecv(vector, peer) for peer, vector in received.items()]
    for work in works:
        work.wait()
    return {peer: vector.numpy() for peer, vector in received.items()}
