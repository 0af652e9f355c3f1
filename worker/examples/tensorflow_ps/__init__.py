"""A TensorFlow gang that can be preempted: an example of `tranche_worker`.

A chief (`tensorflow_ps.chief`) trains one network on the handwritten digits by ParameterServerStrategy: it gives
batches to workers, which fetch parameters from the parameter servers and push gradients to them, each at its own pace.
Workers and parameter servers run `tensorflow_ps.server`. At SIGTERM the chief gives out no more batches, waits for
those under way, saves what the parameter servers hold and exits; the servers follow. `numpy_ps.chunks` stages the data,
as one chunk.
"""
