"""Random objects that a CustomResourceDefinition's structural schema accepts, drawn from the schema itself.

CEL rules are met only as far as they say that a text matches a pattern; what breaks another one the API server refuses.
Optional fields are few, and fewer the deeper they are: a pod template has some thousand. A failing object is not
shrunk, as hypothesis would do: each check of the API server takes seconds, and each object has a seed.
"""

import os
import re
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from random import Random
from typing import Any, TypeVar

T = TypeVar("T")
Schema = Mapping[str, Any]
SEED = int(os.environ.get("SEED", "1"))
"""Seed of all draws."""
FUZZ = int(os.environ.get("FUZZ", "1"))
"""Factor of the number of objects in `make test`."""

_MATCHES = re.compile(r"matches\('\^(.*?)\$'\)")
_TEXTS = (
    "", "a", "train", "0", "-1", "1Gi", "0.5", "100m", "1e3", "cpu", "nvidia.com/gpu", "tranche.dev/job", "A b",
    "é\u20ac", "\u0000", "../x", "$(A)", "%s{}", "line\nline", "x" * 300, "metadata.name", "\U0001f40d",
)  # fmt: skip
_NAMES = (
    "a",
    "train",
    "b-1",
    "cpu",
    "memory",
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "nvidia.com/gpu",
)
_QUANTITIES = (
    "0", "1", "100m", "1m", "0.1", "1.5", "1e3", "1E", "5Ki", "12n", "9223372036854775807", "9" * 25,
    "1e-9", "-1", "1Ei", 2,
)  # fmt: skip
_DURATIONS = ("0s", "1ms", "0.001ms", "90s", "1h30m", "87600h", "0.0s", "1.5h")
_TIMES = ("2026-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z")
_COUNTS = (-(2**63), -1, 0, 1, 2, 3, 4, 30, 2**31 - 1, 2**31, 2**63 - 1)
_NUMBERS = (0.0, 1e-300, 0.5, 1.0, 3.7, 1e6, 1e300)
_ZERO = re.compile(r"[0.]+[a-z]+$")
_SPECIAL = 0.15
"""Share of texts that are invalid names, and of numbers at a bound."""
_OPTIONAL = 5
"""Maximum number of optional fields of an object at the top; one less at each level below."""


def drawn(number: int, draw: Callable[[Random], T], salt: str) -> Iterator[tuple[str, T]]:
    """Yield `number` values with the seed of each; a printed seed draws the same value again."""
    for count in range(number * FUZZ):
        seed = f"{SEED}/{salt}/{count}"
        yield seed, draw(Random(seed))


def some(random: Random, values: Sequence[T], most: int) -> list[T]:
    """Return a few of the values, perhaps none."""
    return random.sample(values, random.randint(0, min(most, len(values))))


def text(random: Random) -> str:
    """Return a text that is mostly a valid name."""
    if random.random() > _SPECIAL:
        return random.choice(_NAMES)
    return random.choice(_TEXTS) if random.random() < 0.8 else "".join(random.choices(string.printable, k=8))


def quantity(random: Random) -> str | int:
    """Return a quantity as Kubernetes reads it."""
    return random.choice(_QUANTITIES)


def instance(random: Random, schema: Schema, level: int = 0) -> Any:
    """Return a value of the schema."""
    if "enum" in schema:
        return random.choice(schema["enum"])
    if schema.get("x-kubernetes-int-or-string"):
        return quantity(random) if _pattern(schema) else random.choice((1, "1", "50%", "http"))
    return _KINDS[schema.get("type", "object")](random, schema, level)


def _object(random: Random, schema: Schema, level: int) -> dict[str, Any]:
    properties: Mapping[str, Schema] = schema.get("properties", {})
    required = [name for name in schema.get("required", ()) if name in properties]
    optional = sorted(set(properties).difference(required))
    chosen = required + some(random, optional, max(1, _OPTIONAL - level))
    while len(chosen) < min(schema.get("minProperties", 0), len(properties)):
        chosen.append(random.choice([name for name in optional if name not in chosen]))
    whole = {name: instance(random, properties[name], level + 1) for name in chosen}
    inner = schema.get("additionalProperties")
    if isinstance(inner, Mapping):
        for _ in range(max(schema.get("minProperties", 0), random.randint(0, 2))):
            whole[text(random)] = instance(random, inner, level + 1)
    return whole


def _list(random: Random, schema: Schema, level: int) -> list[Any]:
    least = schema.get("minItems", 0)
    return [instance(random, schema["items"], level + 1) for _ in range(random.choice((max(1, least), least, 2)))]


def _text(random: Random, schema: Schema, level: int) -> str:
    if schema.get("format") == "date-time":
        return random.choice(_TIMES)
    pattern = _pattern(schema)
    if pattern is None:
        return (text(random) or "a" * schema.get("minLength", 0))[: schema.get("maxLength")]
    known = map(str, (*_DURATIONS, *_QUANTITIES, *_TEXTS, *_NAMES))
    longest = schema.get("maxLength", inf)
    fitting = [one for one in known if len(one) <= longest and re.fullmatch(pattern, one)]
    return random.choice([one for one in fitting if not (_is_positive(schema) and _ZERO.match(one))])


def _pattern(schema: Schema) -> str | None:
    if "pattern" in schema:
        return str(schema["pattern"]).removeprefix("^").removesuffix("$")
    rules = (rule["rule"] for rule in schema.get("x-kubernetes-validations", ()))
    return next((found[1] for rule in rules if (found := _MATCHES.search(rule))), None)


def _is_positive(schema: Schema) -> bool:
    return any("> duration('0s')" in rule["rule"] for rule in schema.get("x-kubernetes-validations", ()))


def _integer(random: Random, schema: Schema, level: int) -> int:
    largest = 2**31 - 1 if schema.get("format") == "int32" else 2**63 - 1
    low, high = schema.get("minimum", -largest - 1), schema.get("maximum", largest)
    if random.random() < _SPECIAL:
        return random.choice([count for count in (*_COUNTS, low, high) if low <= count <= high])
    return random.randint(max(low, 0), min(high, 5))


def _number(random: Random, schema: Schema, level: int) -> float:
    low, high = schema.get("minimum", -1e308), schema.get("maximum", 1e308)
    above = schema.get("exclusiveMinimum", False)
    return random.choice([n for n in (*_NUMBERS, low, high) if low <= n <= high and not (above and n == low)])


def _boolean(random: Random, schema: Schema, level: int) -> bool:
    return random.random() < 0.5


_KINDS: Mapping[str, Callable[[Random, Schema, int], Any]] = {
    "object": _object,
    "array": _list,
    "string": _text,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
}
