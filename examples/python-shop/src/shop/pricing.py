"""Prices over time."""

from datetime import datetime

from sqlalchemy import func, or_, select
from sqlalchemy.orm import Session

from .clock import utcnow
from .db import atomic
from .errors import PriceMissing
from .models import Price, Variant


@atomic
def set_price(
    session: Session,
    variant: Variant,
    currency: str,
    amount: int,
    *,
    since: datetime | None = None,
) -> Price:
    """End the current price and start a new price at the same moment."""
    since = since or utcnow()
    current = session.scalar(
        select(Price)
        .where(
            Price.variant_id == variant.id,
            Price.currency_code == currency,
            Price.valid_to.is_(None),
        )
        .with_for_update()
    )
    if current is not None:
        if current.amount == amount:
            return current
        current.valid_to = since
        session.flush()
    price = Price(variant_id=variant.id, currency_code=currency, amount=amount, valid_from=since)
    session.add(price)
    return price


def price_of(session: Session, variant_id: int, currency: str, at: datetime | None = None) -> int:
    at = at or utcnow()
    amount = session.scalar(
        select(Price.amount).where(
            Price.variant_id == variant_id,
            Price.currency_code == currency,
            Price.valid_from <= at,
            or_(Price.valid_to.is_(None), Price.valid_to > at),
        )
    )
    if amount is None:
        raise PriceMissing(f"variant {variant_id} has no price in {currency}")
    return amount


def history(session: Session, variant: Variant, currency: str) -> list[Price]:
    return list(
        session.scalars(
            select(Price)
            .where(Price.variant_id == variant.id, Price.currency_code == currency)
            .order_by(Price.valid_from)
        )
    )


def price_range(session: Session, product_id: int, currency: str) -> tuple[int, int] | None:
    """Return the lowest and highest current price of a product's active variants."""
    low, high = session.execute(
        select(func.min(Price.amount), func.max(Price.amount))
        .join(Variant, Variant.id == Price.variant_id)
        .where(
            Variant.product_id == product_id,
            Variant.active,
            Price.currency_code == currency,
            Price.valid_to.is_(None),
        )
    ).one()
    return None if low is None else (low, high)
