import contextlib
import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tranche.model.quantity import parse_bytes, parse_duration, parse_millicores, parse_quantity

BINARY = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]
DECIMAL = ["", "k", "M", "G", "T", "P", "E"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        (4, 4),
        (0.5, Decimal("0.5")),
        ("1500m", Decimal("1.5")),
        ("100u", Decimal("0.0001")),
        ("1n", Decimal("1e-9")),
        ("64Mi", 64 * 2**20),
        ("500M", 500_000_000),
        ("1E", 10**18),
        ("1E3", 1000),
        ("12e6", 12_000_000),
        ("1e-3", Decimal("0.001")),
        (".5", Decimal("0.5")),
        ("5.", 5),
        ("-2Ki", -2048),
        ("+3", 3),
    ],
)
def test_a_quantity_is_read_as_kubernetes_reads_it(text: str | float, expected: Decimal) -> None:
    assert parse_quantity(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "m", "1 Gi", "1Gb", "1KI", "1ki", "0x10", "1e", "1e+", "1e9999", "١", "1\n", "--1", "nan", "inf", "None"],
)
def test_what_is_no_quantity_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity such as 64Mi"):
        parse_quantity(text)


@given(st.integers(0, 10**6), st.integers(0, 5))
def test_a_binary_suffix_multiplies_by_a_power_of_1024(number: int, power: int) -> None:
    assert parse_bytes(f"{number}{BINARY[power]}") == min(number * 1024 ** (power + 1), 2**63 - 1)


@given(st.integers(0, 10**9), st.integers(0, 6))
def test_a_decimal_suffix_multiplies_by_a_power_of_1000(number: int, power: int) -> None:
    assert parse_bytes(f"{number}{DECIMAL[power]}") == min(number * 1000**power, 2**63 - 1)


@given(st.integers(0, 10**12))
def test_millicores_survive_the_way_through_text(millicores: int) -> None:
    assert parse_millicores(f"{millicores}m") == millicores
    assert parse_millicores(str(Decimal(millicores) / 1000)) == millicores


def test_fractional_quantities_are_rounded_up() -> None:
    assert parse_bytes("100m") == 1
    assert parse_millicores("100u") == 1


def test_too_large_quantity_is_capped() -> None:
    assert parse_bytes("1e999") == 2**63 - 1
    assert parse_millicores("9E") == 2**63 - 1


@given(st.text(max_size=200) | st.integers() | st.floats())
def test_any_input_is_a_number_or_a_value_error(value: str | float) -> None:
    number = Decimal(0)
    with contextlib.suppress(ValueError):
        number = parse_quantity(value)
    assert abs(number) < 2**63


def test_the_error_does_not_repeat_a_long_input() -> None:
    with pytest.raises(ValueError, match="is not a quantity") as caught:
        parse_quantity("x" * 10_000)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1h30m", 5400), ("120ms", 0.12), ("0", 0), ("0s", 0), ("1.5h", 5400), ("20s", 20), ("2h45m30.5s", 9930.5),
     ("5us", 5e-6), ("5µs", 5e-6), ("7ns", 7e-9), (".5s", 0.5)],
)  # fmt: skip
def test_a_duration_is_read_as_go_reads_it(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "1", "s", "1d", "-1s", "1s ", "1h 30m", "1h30", "٣s"])
def test_what_is_no_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration such as 1h30m"):
        parse_duration(text)


@given(st.integers(0, 1000), st.integers(0, 59), st.integers(0, 59), st.integers(0, 999))
def test_the_parts_of_a_duration_add_up(hours: int, minutes: int, seconds: int, milliseconds: int) -> None:
    total = hours * 3600 + minutes * 60 + seconds + milliseconds / 1000
    assert math.isclose(parse_duration(f"{hours}h{minutes}m{seconds}s{milliseconds}ms"), total)


@given(st.text(max_size=100))
def test_any_text_is_a_duration_or_a_value_error(text: str) -> None:
    seconds = 0.0
    with contextlib.suppress(ValueError):
        seconds = parse_duration(text)
    assert seconds >= 0
