"""A PyTorch gang that can be preempted: an example of `tranche_worker`.

The members train one network on the handwritten digits together (DistributedDataParallel over gloo, on CPUs). When one
of them gets SIGTERM, all stop before the same batch, rank 0 saves model, optimizer and batch number, and the next
attempt of the gang resumes there. With spec.communication.aggregation median or trimmed-mean, a robust rule replaces
the mean of DistributedDataParallel (`torch_gang.robust`). `numpy_ps.chunks` stages the data as one chunk.
"""
