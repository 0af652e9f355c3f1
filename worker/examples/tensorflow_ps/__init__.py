"""A TensorFlow gang that can be preempted: an example of `tranche_worker`.

A chief (`tensorflow_ps.chief`) trains one network on the handwritten digits with ParameterServerStrategy: it assigns
batches to workers, which fetch parameters from the parameter servers and push gradients asynchronously. Workers and
parameter servers run `tensorflow_ps.server`. On SIGTERM, the chief assigns no more batches, waits for the current ones,
saves the parameters and exits; then the servers exit. `numpy_ps.chunks` stages the data as one chunk.
"""
