"""Parsers for Kubernetes quantities (``64Mi``, ``1500m``) and Go durations (``1h30m``)."""

import re
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache

_QUANTITY = re.compile(
    r"([+-]?)(\d{1,64}(?:\.\d{0,64})?|\.\d{1,64})(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?\d{1,3}))?", re.ASCII
)
_SCALES = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate("kMGTPE", 1)},
    **{f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", 1)},
}
_LARGEST = Decimal(2**63 - 1)
_DURATION = re.compile(r"(\d{1,20}(?:\.\d{0,20})?|\.\d{1,20})(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_quantity(value: str | float) -> Decimal:
    """Parse a quantity as Kubernetes does: decimal or binary suffix or exponent, capped at ±(2⁶³ − 1).

    >>> parse_quantity("1.5Ki")
    Decimal('1536.0')

    Raises:
        ValueError: if the text is not a quantity.
    """
    text = str(value)
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(f"{text[:80]!r} is not a quantity such as 64Mi, 500M, 1500m or 2")
    sign, digits, suffix, exponent = match.groups()
    number = Decimal(f"{sign}{digits}")
    if suffix:
        number *= _SCALES[suffix]
    elif exponent:
        number = number.scaleb(int(exponent))
    return max(-_LARGEST, min(number, _LARGEST))


@lru_cache(maxsize=4096)
def parse_millicores(value: str | float) -> int:
    """Parse a CPU quantity into millicores, rounded up as Kubernetes does."""
    return _rounded_up(min(parse_quantity(value) * 1000, _LARGEST))


@lru_cache(maxsize=4096)
def parse_bytes(value: str | float) -> int:
    """Parse a quantity of bytes, or of countable items; fractions are rounded up as Kubernetes does."""
    return _rounded_up(parse_quantity(value))


@lru_cache(maxsize=1024)
def parse_duration(text: str) -> float:
    """Parse a non-negative duration in Go's format; return seconds.

    >>> parse_duration("1h30m")
    5400.0

    Raises:
        ValueError: if the text is not a duration.
    """
    matches = list(_DURATION.finditer(text))
    if text != "0" and (not matches or sum(len(match.group()) for match in matches) != len(text)):
        raise ValueError(f"{text[:80]!r} is not a duration such as 1h30m, 20s or 120ms")
    return sum(float(match[1]) * _SECONDS[match[2]] for match in matches)


def _rounded_up(number: Decimal) -> int:
    return int(number.to_integral_value(rounding=ROUND_CEILING))
