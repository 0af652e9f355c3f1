"""Layers of usual neural networks, computed from the shapes of their published architectures.

A network is a chain of layers, from the input to the output; a branch follows the layer that it starts from. Each
layer has the number of its parameters, the multiply-adds of one example's forward pass, and the numbers that this pass
reads and writes. The shapes are public [P of each architecture]; the counting is ours [I]: a normalization belongs to
the layer before it, and pooling, activation functions, additions and biases cost no multiply-adds.

The shapes follow: Krizhevsky, One weird trick for parallelizing convolutional neural networks, arXiv 1404.5997
(AlexNet of one tower); Simonyan and Zisserman, arXiv 1409.1556 (VGG-16); He et al., arXiv 1512.03385 (ResNet); Vaswani
et al., arXiv 1706.03762 (Transformer); Zaremba et al., arXiv 1409.2329 (LSTM).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

BYTES_PER_NUMBER = 4
"""Bytes of one number in single precision, of parameters, gradients and activations alike."""
BACKWARD_SHARE = 2.0
"""Backward over forward pass of a layer, in multiply-adds and bytes: gradients of its inputs and of its weights [I]."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer of a network; counts are of one example."""

    name: str
    parameters: int
    multiply_adds: int
    """Multiply-adds of the forward pass."""
    activations: int
    """Numbers that the forward pass reads and writes, without the parameters."""


@dataclass(frozen=True, slots=True)
class Device:
    """Peak rates of a GPU."""

    flops_per_second: float
    bytes_per_second: float
    """Bandwidth of its memory."""


@dataclass(frozen=True, slots=True)
class LayerTime:
    """Times of one layer for one mini-batch, and the size of its gradients."""

    forward_seconds: float
    backward_seconds: float
    gradient_bits: float


def layer_times(
    layers: tuple[Layer, ...], device: Device, examples: int, calibration: float = 1.0
) -> tuple[LayerTime, ...]:
    """Return the times of the layers by the roofline: max(flops/peak, bytes/memory bandwidth) × calibration [I].

    Args:
        layers: The network.
        device: GPU of the worker.
        examples: Examples in a mini-batch of one worker.
        calibration: Measured over computed seconds, per model family and GPU kind.
    """
    times = []
    for layer in layers:
        flops = 2.0 * layer.multiply_adds * examples
        numbers = layer.parameters + layer.activations * examples
        forward = max(flops / device.flops_per_second, BYTES_PER_NUMBER * numbers / device.bytes_per_second)
        forward *= calibration
        times.append(LayerTime(forward, BACKWARD_SHARE * forward, 8.0 * BYTES_PER_NUMBER * layer.parameters))
    return tuple(times)


# ---- building blocks


@dataclass(slots=True)
class _Images:
    """Chain of layers over square images, with the shape that the last layer has written."""

    channels: int
    side: int
    layers: list[Layer]

    def convolution(self, name: str, out: int, kernel: int, stride: int, padding: int, *, bias: bool) -> None:
        """Append a convolution; without a bias, it has a normalization with two parameters per channel."""
        self.layers.append(self.branch(name, self.channels, self.side, out, kernel, stride, padding, bias=bias))
        self.channels, self.side = out, _side(self.side, kernel, stride, padding)

    def branch(
        self, name: str, channels: int, side: int, out: int, kernel: int, stride: int, padding: int, *, bias: bool
    ) -> Layer:
        """Return a convolution of an image of the given channels and side."""
        weights, area = kernel * kernel * channels * out, _side(side, kernel, stride, padding) ** 2
        moved = channels * side**2 + out * area
        return Layer(name, weights + (out if bias else 2 * out), weights * area, moved)

    def pool(self, kernel: int, stride: int, padding: int = 0) -> None:
        """Change the shape by a pooling."""
        self.side = _side(self.side, kernel, stride, padding)

    def dense(self, name: str, inputs: int, outputs: int) -> None:
        """Append a fully connected layer with a bias."""
        self.layers.append(dense(name, inputs, outputs))


def dense(name: str, inputs: int, outputs: int, tokens: int = 1, *, bias: bool = True) -> Layer:
    """Return a fully connected layer that is applied to each of `tokens` vectors."""
    weights = inputs * outputs
    return Layer(name, weights + (outputs if bias else 0), weights * tokens, (inputs + outputs) * tokens)


def embedding(name: str, vocabulary: int, width: int, tokens: int) -> Layer:
    """Return a table of vectors, of which an example reads one per token; its gradient is sent whole [I]."""
    return Layer(name, vocabulary * width, 0, 2 * width * tokens)


def _side(side: int, kernel: int, stride: int, padding: int) -> int:
    return (side + 2 * padding - kernel) // stride + 1


# ---- networks


def alexnet(side: int = 224, classes: int = 1000) -> tuple[Layer, ...]:
    """Return AlexNet of one tower for images of the given side."""
    images = _Images(3, side, [])
    images.convolution("conv1", 64, 11, 4, 2, bias=True)
    images.pool(3, 2)
    images.convolution("conv2", 192, 5, 1, 2, bias=True)
    images.pool(3, 2)
    images.convolution("conv3", 384, 3, 1, 1, bias=True)
    images.convolution("conv4", 256, 3, 1, 1, bias=True)
    images.convolution("conv5", 256, 3, 1, 1, bias=True)
    for name, inputs, outputs in (("fc6", 256 * 36, 4096), ("fc7", 4096, 4096), ("fc8", 4096, classes)):
        images.dense(name, inputs, outputs)  # an adaptive pooling makes the side 6
    return tuple(images.layers)


def vgg16(side: int = 224, classes: int = 1000) -> tuple[Layer, ...]:
    """Return VGG-16 for images of the given side."""
    images = _Images(3, side, [])
    for stage, (count, out) in enumerate(((2, 64), (2, 128), (3, 256), (3, 512), (3, 512)), start=1):
        for index in range(1, count + 1):
            images.convolution(f"conv{stage}_{index}", out, 3, 1, 1, bias=True)
        images.pool(2, 2)
    for name, inputs, outputs in (("fc6", 512 * 49, 4096), ("fc7", 4096, 4096), ("fc8", 4096, classes)):
        images.dense(name, inputs, outputs)  # an adaptive pooling makes the side 7
    return tuple(images.layers)


def resnet18(side: int = 224, classes: int = 1000) -> tuple[Layer, ...]:
    """Return ResNet-18; images of at most 64 pixels a side get the small stem, as is usual for CIFAR-10 [I]."""
    return _resnet((2, 2, 2, 2), 1, side, classes)


def resnet50(side: int = 224, classes: int = 1000) -> tuple[Layer, ...]:
    """Return ResNet-50, whose blocks have a bottleneck; small images as in `resnet18`."""
    return _resnet((3, 4, 6, 3), 4, side, classes)


def _resnet(blocks: tuple[int, ...], expansion: int, side: int, classes: int) -> tuple[Layer, ...]:
    images = _Images(3, side, [])
    if side > 64:
        images.convolution("stem", 64, 7, 2, 3, bias=False)
        images.pool(3, 2, 1)
    else:
        images.convolution("stem", 64, 3, 1, 1, bias=False)
    for stage, count in enumerate(blocks, start=1):
        for index in range(count):
            stride = 2 if stage > 1 and index == 0 else 1
            _residual_block(images, f"block{stage}.{index + 1}", 32 << stage, expansion, stride)
    images.dense("fc", images.channels, classes)
    return tuple(images.layers)


def _residual_block(images: _Images, name: str, width: int, expansion: int, stride: int) -> None:
    """Append a block of two convolutions, or of three with a bottleneck, and the projection beside them."""
    channels, side, out = images.channels, images.side, width * expansion
    if expansion == 1:
        images.convolution(f"{name}.a", width, 3, stride, 1, bias=False)
        images.convolution(f"{name}.b", width, 3, 1, 1, bias=False)
    else:
        images.convolution(f"{name}.a", width, 1, 1, 0, bias=False)
        images.convolution(f"{name}.b", width, 3, stride, 1, bias=False)
        images.convolution(f"{name}.c", out, 1, 1, 0, bias=False)
    if stride > 1 or channels != out:
        images.layers.append(images.branch(f"{name}.projection", channels, side, out, 1, stride, 0, bias=False))


def transformer(
    width: int = 512, blocks: int = 6, inner: int = 2048, vocabulary: int = 37000, tokens: int = 32
) -> tuple[Layer, ...]:
    """Return the base Transformer of encoder and decoder, with one shared embedding.

    Args:
        width: Numbers of a token's vector.
        blocks: Blocks of the encoder, and as many of the decoder.
        inner: Width of the inner layer of a block.
        vocabulary: Entries of the embedding.
        tokens: Tokens of a source sentence, and as many of its translation.
    """
    layers = [embedding("embedding", vocabulary, width, 2 * tokens)]
    for part, attentions in (("encoder", ("self",)), ("decoder", ("self", "cross"))):
        for index in range(1, blocks + 1):
            name = f"{part}{index}"
            layers += [_attention(f"{name}.{kind}", width, tokens) for kind in attentions]
            layers.append(dense(f"{name}.inner", width, inner, tokens))
            layers.append(_normalized(dense(f"{name}.outer", inner, width, tokens), width))
    layers.append(Layer("output", 0, width * vocabulary * tokens, (width + vocabulary) * tokens))
    return tuple(layers)


def _attention(name: str, width: int, tokens: int) -> Layer:
    """Return an attention: four projections, and the products of queries, keys and values."""
    projections = 4 * (width * width + width)
    multiply_adds = 4 * width * width * tokens + 2 * tokens * tokens * width
    return _normalized(Layer(name, projections, multiply_adds, 8 * width * tokens + 2 * tokens * tokens), width)


def _normalized(layer: Layer, width: int) -> Layer:
    """Return the layer with a normalization, which has two parameters per number."""
    return Layer(layer.name, layer.parameters + 2 * width, layer.multiply_adds, layer.activations)


def lstm(width: int = 650, depth: int = 2, vocabulary: int = 10000, tokens: int = 35) -> tuple[Layer, ...]:
    """Return a language model of stacked LSTM layers, each with two biases per gate, and an output of its own."""
    layers = [embedding("embedding", vocabulary, width, tokens)]
    for index in range(1, depth + 1):
        weights = 8 * width * width
        layers.append(Layer(f"lstm{index}", weights + 8 * width, weights * tokens, 10 * width * tokens))
    layers.append(dense("output", width, vocabulary, tokens))
    return tuple(layers)


NETWORKS: Mapping[str, Callable[[], tuple[Layer, ...]]] = MappingProxyType(
    {
        "alexnet": alexnet,
        "vgg16": vgg16,
        "resnet18": resnet18,
        "resnet50": resnet50,
        "transformer": transformer,
        "lstm": lstm,
    }
)
"""Networks by name, with the sizes of their publications: images of 224 pixels a side, sentences of 32 tokens [I]."""
