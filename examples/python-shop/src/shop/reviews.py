"""Reviews by buyers, and their summary."""

from dataclasses import dataclass
from decimal import Decimal

from sqlalchemy import exists, select, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from . import settings
from .db import atomic
from .errors import InvalidTransition, ReviewRejected
from .models import (
    Customer,
    Order,
    OrderLine,
    OrderStatus,
    Product,
    Review,
    ReviewStatus,
    Variant,
)


@dataclass(frozen=True)
class Rating:
    reviews: int
    rating: Decimal


def has_received(session: Session, customer: Customer, product: Product) -> bool:
    bought = (
        exists()
        .where(OrderLine.order_id == Order.id, Order.customer_id == customer.id)
        .where(Order.status.in_([OrderStatus.SHIPPED, OrderStatus.DELIVERED]))
        .where(OrderLine.variant_id == Variant.id, Variant.product_id == product.id)
    )
    return bool(session.scalar(select(bought)))


@atomic
def submit(
    session: Session,
    customer: Customer,
    product: Product,
    rating: int,
    title: str,
    body: str = "",
) -> Review:
    """Store a review. Only buyers may write reviews, and only one review per product."""
    if not 1 <= rating <= 5:
        raise ReviewRejected(f"{rating} stars")
    if not has_received(session, customer, product):
        raise ReviewRejected("not a buyer")
    moderated = settings.get(session, "reviews.moderated")
    review = Review(
        product_id=product.id,
        customer_id=customer.id,
        rating=rating,
        title=title,
        body=body,
        status=ReviewStatus.PENDING if moderated else ReviewStatus.PUBLISHED,
    )
    try:
        with session.begin_nested():
            session.add(review)
    except IntegrityError as error:
        raise ReviewRejected("reviewed before") from error
    return review


@atomic
def moderate(session: Session, review: Review, *, publish: bool) -> None:
    if review.status is not ReviewStatus.PENDING:
        raise InvalidTransition(f"review {review.id} is {review.status.value}")
    review.status = ReviewStatus.PUBLISHED if publish else ReviewStatus.REJECTED


@atomic
def refresh_ratings(session: Session) -> None:
    """Refresh the materialized summary without blocking its readers."""
    session.execute(text("REFRESH MATERIALIZED VIEW CONCURRENTLY product_ratings"))


def rating_of(session: Session, product: Product) -> Rating | None:
    row = session.execute(
        text("SELECT reviews, rating FROM product_ratings WHERE product_id = :id"),
        {"id": product.id},
    ).one_or_none()
    return None if row is None else Rating(row.reviews, row.rating)


def top_rated(session: Session, *, at_least: int = 1, limit: int = 10) -> list[str]:
    """Return the names of the best products that enough customers have reviewed."""
    return list(
        session.scalars(
            text(
                "SELECT p.name FROM product_ratings r JOIN products p ON p.id = r.product_id"
                " WHERE p.active AND r.reviews >= :at_least"
                " ORDER BY r.rating DESC, r.reviews DESC, p.id LIMIT :limit"
            ),
            {"at_least": at_least, "limit": limit},
        )
    )
