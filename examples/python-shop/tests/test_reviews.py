from decimal import Decimal

import pytest
from sqlalchemy import select

from shop import catalog, reviews, settings
from shop.errors import InvalidTransition, ReviewRejected
from shop.models import Review, ReviewStatus
from shop.reviews import Rating


@pytest.fixture
def publish_at_once(session):
    settings.put(session, "reviews.moderated", False)


def rate(session, make, product, *ratings):
    variant = make.variant(product=product, pieces=len(ratings))
    for rating in ratings:
        customer = make.customer()
        make.delivered_order((variant, 1), customer=customer)
        reviews.submit(session, customer, product, rating, "title")


def test_buyer_may_review(session, make):
    customer, variant = make.customer(), make.variant()
    make.delivered_order((variant, 1), customer=customer)
    review = reviews.submit(session, customer, variant.product, 4, "Good", "Fits.")
    assert (review.status, review.rating) == (ReviewStatus.PENDING, 4)


def test_others_may_not(session, make):
    customer, variant = make.customer(), make.variant()
    with pytest.raises(ReviewRejected, match="not a buyer"):
        reviews.submit(session, customer, variant.product, 4, "Never seen")
    make.paid_order((variant, 1), customer=customer)
    with pytest.raises(ReviewRejected, match="not a buyer"):
        reviews.submit(session, customer, variant.product, 4, "Not here yet")


def test_any_variant_of_the_product_counts(session, make):
    product, customer = make.product(), make.customer()
    make.variant(product=product)
    bought = make.variant(product=product)
    make.delivered_order((bought, 1), customer=customer)
    assert reviews.has_received(session, customer, product)
    assert not reviews.has_received(session, customer, make.product())


def test_one_review_per_product(session, make):
    customer, variant = make.customer(), make.variant()
    make.delivered_order((variant, 1), customer=customer)
    reviews.submit(session, customer, variant.product, 4, "Good")
    with pytest.raises(ReviewRejected, match="before"):
        reviews.submit(session, customer, variant.product, 1, "Bad after all")


@pytest.mark.parametrize("rating", [0, 6])
def test_one_to_five_stars(session, make, rating):
    with pytest.raises(ReviewRejected, match="stars"):
        reviews.submit(session, make.customer(), make.product(), rating, "?")


def test_moderation_happens_once(session, make):
    product = make.product()
    rate(session, make, product, 5)
    review = session.scalars(select(Review)).one()
    reviews.moderate(session, review, publish=False)
    with pytest.raises(InvalidTransition):
        reviews.moderate(session, review, publish=True)
    reviews.refresh_ratings(session)
    assert reviews.rating_of(session, product) is None


@pytest.mark.usefixtures("publish_at_once")
def test_summary_waits_for_its_refresh(session, make):
    product = make.product()
    reviews.refresh_ratings(session)
    rate(session, make, product, 5, 4, 4)
    assert reviews.rating_of(session, product) is None
    reviews.refresh_ratings(session)
    assert reviews.rating_of(session, product) == Rating(3, Decimal("4.33"))


@pytest.mark.usefixtures("publish_at_once")
def test_best_products(session, make):
    loved, liked, once = make.product("Loved"), make.product("Liked"), make.product("Once")
    rate(session, make, liked, 4, 4)
    rate(session, make, loved, 5, 4)
    rate(session, make, once, 5)
    reviews.refresh_ratings(session)
    assert reviews.top_rated(session) == ["Once", "Loved", "Liked"]
    assert reviews.top_rated(session, at_least=2) == ["Loved", "Liked"]
    assert reviews.top_rated(session, limit=1) == ["Once"]
    catalog.deactivate(session, loved)
    assert reviews.top_rated(session, at_least=2) == ["Liked"]
