"""A PyTorch gang that can be preempted: an example of `tranche_worker`.

The members train one network on the handwritten digits together (DistributedDataParallel over gloo, on CPUs). They stop
before the same batch when one of them gets SIGTERM, rank 0 saves model, optimizer and number of the batch, and the next
attempt of the gang goes on from there. `numpy_ps.chunks` stages the data, as one chunk.
"""
