"""Amounts are integers in the minor unit of their currency. Rates are decimals."""

from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Decimal


def apply_rate(amount: int, rate: Decimal) -> int:
    """Return `amount` times `rate`. Halves are rounded away from zero."""
    return int((Decimal(amount) * rate).quantize(Decimal(1), rounding=ROUND_HALF_UP))


def allocate(amount: int, weights: Sequence[int]) -> list[int]:
    """Split `amount` in proportion to `weights` so that the parts add up exactly.

    The largest remainders get the units that rounding leaves. If remainders are equal, the
    earlier part gets a unit first.
    """
    total = sum(weights)
    if total <= 0:
        raise ValueError("weights must have a positive sum")
    parts = [amount * weight // total for weight in weights]
    by_remainder = sorted(
        range(len(weights)), key=lambda i: amount * weights[i] % total, reverse=True
    )
    for i in by_remainder[: amount - sum(parts)]:
        parts[i] += 1
    return parts
