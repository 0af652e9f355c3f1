"""A network with one hidden layer, and its parameters in one flat vector."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Labels = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Network:
    """Network of tanh and softmax layers with weight decay; parameters are vectors of `size` numbers."""

    inputs: int = 64
    hidden: int = 24
    classes: int = 10
    decay: float = 1e-2

    @property
    def size(self) -> int:
        """Length of the parameter vector."""
        return (self.inputs + 1) * self.hidden + (self.hidden + 1) * self.classes

    def initial(self, seed: int) -> Array:
        """Return small random weights."""
        draw = np.random.default_rng(seed)
        scale = np.concatenate(
            [
                np.full((self.inputs + 1) * self.hidden, self.inputs**-0.5),
                np.full((self.hidden + 1) * self.classes, self.hidden**-0.5),
            ]
        )
        weights: Array = draw.standard_normal(self.size) * scale
        return weights

    def loss(self, parameters: Array, x: Array, y: Labels) -> float:
        """Return the mean cross-entropy of rows `x` (n × inputs) with classes `y` (n), plus the weight decay."""
        _, logits = self._forward(parameters, x)
        return float(-_log_softmax(logits)[np.arange(len(y)), y].mean() + self.decay / 2 * parameters @ parameters)

    def gradient(self, parameters: Array, x: Array, y: Labels) -> Array:
        """Return the gradient of `loss` with respect to the parameters."""
        hidden, logits = self._forward(parameters, x)
        _, upper = self._layers(parameters)
        error = np.exp(_log_softmax(logits))
        error[np.arange(len(y)), y] -= 1
        error /= len(y)
        below = error @ upper[:-1].T * (1 - hidden**2)
        lower = np.concatenate([x.T @ below, below.sum(0, keepdims=True)])
        above = np.concatenate([hidden.T @ error, error.sum(0, keepdims=True)])
        return np.concatenate([lower.ravel(), above.ravel()]) + self.decay * parameters

    def _layers(self, parameters: Array) -> tuple[Array, Array]:
        """Return the weights of both layers, with the biases as last rows."""
        cut = (self.inputs + 1) * self.hidden
        return parameters[:cut].reshape(-1, self.hidden), parameters[cut:].reshape(-1, self.classes)

    def _forward(self, parameters: Array, x: Array) -> tuple[Array, Array]:
        lower, upper = self._layers(parameters)
        hidden = np.tanh(x @ lower[:-1] + lower[-1])
        return hidden, hidden @ upper[:-1] + upper[-1]


def _log_softmax(logits: Array) -> Array:
    shifted = logits - logits.max(1, keepdims=True)
    logs: Array = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    return logs
