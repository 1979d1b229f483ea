from decimal import Decimal

import pytest

from shop.money import allocate, apply_rate


@pytest.mark.parametrize(
    ("amount", "rate", "expected"),
    [(1000, "0.19", 190), (50, "0.19", 10), (150, "0.05", 8), (10, "0.05", 1), (9, "0.05", 0)],
)
def test_rates_round_half_up(amount, rate, expected):
    assert apply_rate(amount, Decimal(rate)) == expected


def test_allocation_adds_up():
    assert allocate(100, [1, 1, 1]) == [34, 33, 33]
    assert allocate(1, [5, 10]) == [0, 1]
    for amount in range(200):
        assert sum(allocate(amount, [3, 7, 11, 1])) == amount


def test_allocation_never_exceeds_the_weights():
    weights = [199, 1, 300]
    for amount in range(sum(weights) + 1):
        assert all(
            part <= weight for part, weight in zip(allocate(amount, weights), weights, strict=True)
        )


def test_allocation_needs_weight():
    with pytest.raises(ValueError, match="positive"):
        allocate(10, [0, 0])
