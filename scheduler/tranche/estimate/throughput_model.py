"""Iteration times for batch sizes, GPU counts and placements that were not measured, from those that were.

Design ours [I], after the abstract of Network Scheduling for Distributed Machine Learning (HKUST thesis, 2019), which
gives an error below 10 % for its DeepProphet and no formula. The time of an iteration is a sum of three products, each
of a factor of the model family and a factor of the GPU kind. One more factor, of the pair, multiplies computation only,
because links move the gradients of every family at the same rate:

    t = s(family, kind) · (a(family)·o(kind) + batch·c(family)·v(kind)) + g(family)·w(kind, workers, spread)

a, c and g begin as the layers, the multiply-adds and the gradient bits of the family's layer graph, so that a family
without a measurement has them too. Coordinate descent minimizes the squared logarithms of predicted over measured
seconds, of which large ones count by their absolute value (iteratively reweighted least squares); the update of each
factor has a closed form. One calibration run of a pair sets s.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, log, prod, sqrt
from operator import mul

from tranche.estimate.layer_graph import Layer

SWEEPS = 60
"""Number of updates of every factor."""
RIDGE = 0.01
"""Weight of the squared relative distance of a factor from its start value; a squared relative error has weight 1."""
PAIR_RIDGE = 0.2
"""The same weight for the factor of a pair, which is 1 at the start."""
LARGE_ERROR = 0.1
"""Relative error from which an error weighs less than its square."""
MIN_SHARE = 1e-3
"""Smallest ratio of a factor to its start value."""
MIN_COMPUTATION = 0.3
"""Least part of a calibration run that counts as computation, however much the transfers should take [I]."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Configuration of a training run."""

    family: str
    kind: str
    """GPU kind."""
    batch: float
    """Examples in the mini-batch of one worker."""
    workers: int = 1
    spread: bool = False
    """Whether the workers are on several nodes."""


@dataclass(frozen=True, slots=True)
class Size:
    """Size of a model family, from its layer graph."""

    layers: float
    multiply_adds: float
    """Per example, in the forward pass."""
    gradient_bits: float

    @classmethod
    def of(cls, layers: Sequence[Layer]) -> "Size":
        """Return the size of a layer graph in single precision."""
        parameters = sum(layer.parameters for layer in layers)
        return cls(len(layers), sum(layer.multiply_adds for layer in layers), 32.0 * parameters)


Factor = tuple[str, ...]
"""Name of a factor: its role, then the family, or the kind with workers and placement, or the pair."""


@dataclass(slots=True)
class ThroughputModel:
    """Iteration times of model families on GPU kinds."""

    sizes: Mapping[str, Size]
    """Size of every family."""
    factors: dict[Factor, float] = field(default_factory=dict)

    @classmethod
    def fitted(cls, sizes: Mapping[str, Size], runs: Mapping[Setting, float]) -> "ThroughputModel":
        """Return a model of the measured seconds of an iteration."""
        model = cls(sizes)
        terms = [(model._products(setting), seconds) for setting, seconds in runs.items()]
        starts = model._start(terms)
        model.factors = dict(starts)
        touched: dict[Factor, list[int]] = {}
        for index, (products, _) in enumerate(terms):
            for factor in dict.fromkeys(name for product in products for name in product):
                touched.setdefault(factor, []).append(index)
        for _ in range(SWEEPS):
            weights = [_weight(model._sum(products) / seconds) for products, seconds in terms]
            for factor, indices in touched.items():
                model._update(factor, starts[factor], [(*terms[index], weights[index]) for index in indices])
            model._normalize()
        return model

    def seconds(self, setting: Setting) -> float:
        """Return the predicted time of an iteration."""
        return self._sum(self._products(setting))

    def calibrate(self, setting: Setting, seconds: float) -> None:
        """Set the factor of the family on the GPU kind so that the prediction of one run is its measured time.

        The transfers of a run with several workers keep their predicted time, and the computation takes the rest.
        """
        pair = ("s", setting.family, setting.kind)
        products = self._products(setting)
        computation = self._sum(product for product in products if pair in product)
        transfers = self._sum(product for product in products if pair not in product)
        rest = max(seconds - transfers, MIN_COMPUTATION * seconds)
        self.factors[pair] = self.factors.get(pair, 1.0) * rest / computation

    def _products(self, setting: Setting) -> list[dict[Factor, float]]:
        """Return the terms of the sum: for each, its factors, and the known number that multiplies them."""
        size, family, kind = self.sizes[setting.family], setting.family, setting.kind
        pair = ("s", family, kind)
        products = [
            {pair: 1.0, ("a", family): size.layers, ("o", kind): 1.0},
            {pair: 1.0, ("c", family): size.multiply_adds, ("v", kind): setting.batch},
        ]
        if setting.workers > 1:
            wire = ("w", kind, str(setting.workers), str(setting.spread))
            products.append({("g", family): size.gradient_bits, wire: 1.0})
        return products

    def _sum(self, products: Iterable[Mapping[Factor, float]]) -> float:
        return sum(self._value(product) for product in products)

    def _value(self, product: Mapping[Factor, float]) -> float:
        return prod(number * self.factors.get(factor, 1.0) for factor, number in product.items())

    def _start(self, terms: Sequence[tuple[list[dict[Factor, float]], float]]) -> dict[Factor, float]:
        """Return start values: 1, but for the kinds, where each term explains an equal share of the mean time."""
        shares: dict[Factor, list[float]] = {}
        starts: dict[Factor, float] = {}
        for products, seconds in terms:
            for product in products:
                number = prod(product.values())
                for factor in product:
                    starts[factor] = 1.0
                    if factor[0] in "ovw":  # the roles of the kinds' factors
                        shares.setdefault(factor, []).append(log(seconds / len(products) / number))
        return starts | {factor: exp(sum(logs) / len(logs)) for factor, logs in shares.items()}

    def _normalize(self) -> None:
        """Set the geometric mean of each role's family factors to 1, and multiply the kinds' factors by it instead.

        The products stay as they are; only then do the kinds' factors hold for a family without a measurement.
        """
        for role, other in (("a", "o"), ("c", "v"), ("g", "w")):
            logs = [log(value) for factor, value in self.factors.items() if factor[0] == role]
            mean = exp(sum(logs) / len(logs)) if logs else 1.0
            for factor in self.factors:
                if factor[0] == role:
                    self.factors[factor] /= mean
                elif factor[0] == other:
                    self.factors[factor] *= mean

    def _update(
        self, factor: Factor, start: float, terms: Sequence[tuple[list[dict[Factor, float]], float, float]]
    ) -> None:
        """Set a factor to the minimum of the weighted squared relative errors, all others being fixed.

        Args:
            factor: Name of the factor.
            start: Start value of the factor.
            terms: Products, measured seconds and weight of each run that has the factor.
        """
        value = self.factors[factor]
        ridge = PAIR_RIDGE if factor[0] == "s" else RIDGE
        numerator, denominator = ridge, ridge  # in units of the start value
        for products, seconds, weight in terms:
            slope = sum(self._value(product) for product in products if factor in product) / value * start / seconds
            rest = sum(self._value(product) for product in products if factor not in product) / seconds
            numerator += weight * slope * (1.0 - rest)
            denominator += weight * slope * slope
        self.factors[factor] = start * max(MIN_SHARE, numerator / denominator)


def _weight(ratio: float) -> float:
    """Return the weight of a squared relative error with which it counts as that of its logarithm."""
    logarithm = abs(log(ratio))
    exact = (logarithm / (ratio - 1.0)) ** 2 if logarithm > 1e-9 else 1.0
    return exact / max(1.0, logarithm / LARGE_ERROR)


FORGETTING = 0.98
"""Weight of an earlier measurement against the next one."""
PRIOR_VARIANCE = (0.04, 0.01, 0.04, 0.04)
"""Variances of the coefficients before any measurement."""
MAX_VARIANCE_RATIO = 2.0
"""Largest ratio of a coefficient's variance to that before any measurement: that of 35 measurements without it."""
NOISE_VARIANCE = 0.02
"""Variance of the logarithm of one measurement."""


@dataclass(slots=True)
class OnlineCorrection:
    """Correction of the predictions of one family on one GPU kind by its own measurements.

    Recursive least squares of the logarithm of measured over predicted seconds against (1, batch, workers, spread),
    with forgetting up to twice the variances before any measurement; the batch is relative to `batch`, and workers
    count in logarithms to base 2 over 3 [I].
    """

    batch: float
    """Batch size that counts as 1."""
    _means: list[float] = field(default_factory=lambda: [0.0] * 4)
    _covariance: list[list[float]] = field(
        default_factory=lambda: [[PRIOR_VARIANCE[i] * (i == j) for j in range(4)] for i in range(4)]
    )

    def factor(self, setting: Setting) -> float:
        """Return the corrected over the predicted seconds."""
        return exp(sum(mean * feature for mean, feature in zip(self._means, self._features(setting), strict=True)))

    def observe(self, setting: Setting, measured: float, predicted: float) -> None:
        """Learn from one measurement; `predicted` is the prediction without this correction."""
        features = self._features(setting)
        projected = [sum(map(mul, row, features)) for row in self._covariance]
        variance = NOISE_VARIANCE + sum(map(mul, projected, features))
        error = log(measured / predicted / self.factor(setting))
        gains = [value / variance for value in projected]
        self._means = [mean + gain * error for mean, gain in zip(self._means, gains, strict=True)]
        covariance = [
            [(self._covariance[i][j] - projected[i] * projected[j] / variance) / FORGETTING for j in range(4)]
            for i in range(4)
        ]
        # Forgetting would raise the variance of a coefficient on which no measurement depends beyond any limit.
        limits = [MAX_VARIANCE_RATIO * prior for prior in PRIOR_VARIANCE]
        scales = [min(1.0, sqrt(limit / covariance[i][i])) for i, limit in enumerate(limits)]
        self._covariance = [[covariance[i][j] * scales[i] * scales[j] for j in range(4)] for i in range(4)]

    def _features(self, setting: Setting) -> tuple[float, float, float, float]:
        workers = log(setting.workers, 2) / 3.0
        return (1.0, setting.batch / self.batch - 1.0, workers, float(setting.spread))
