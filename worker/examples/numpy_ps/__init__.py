"""Asynchronous training with a parameter server, in numpy and the standard library: an example of `tranche_worker`.

A small neural network learns the handwritten digits of the UCI repository, which scikit-learn ships. Workers fetch the
parameters, compute the gradient of one mini-batch and push it; the server applies each mini-batch once, in its order
within the chunk, and saves parameters, counts and fence together.
"""
