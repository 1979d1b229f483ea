import itertools
from datetime import datetime, timedelta, timezone

import pytest

from shop import pricing
from shop.errors import PriceMissing

MAY = datetime(2024, 5, 1, tzinfo=timezone.utc)
JUNE = datetime(2024, 6, 1, tzinfo=timezone.utc)


@pytest.fixture
def variant(make):
    return make.variant(price=None, pieces=0)


def test_price_in_force(session, variant):
    pricing.set_price(session, variant, "EUR", 1000, since=MAY)
    pricing.set_price(session, variant, "EUR", 1200, since=JUNE)
    assert pricing.price_of(session, variant.id, "EUR", MAY) == 1000
    assert pricing.price_of(session, variant.id, "EUR", JUNE - timedelta(seconds=1)) == 1000
    assert pricing.price_of(session, variant.id, "EUR", JUNE) == 1200
    assert pricing.price_of(session, variant.id, "EUR") == 1200


def test_no_price_before_the_first(session, variant):
    pricing.set_price(session, variant, "EUR", 1000, since=MAY)
    with pytest.raises(PriceMissing):
        pricing.price_of(session, variant.id, "EUR", MAY - timedelta(days=1))


def test_currencies_are_independent(session, variant):
    pricing.set_price(session, variant, "EUR", 1000, since=MAY)
    pricing.set_price(session, variant, "GBP", 900, since=MAY)
    pricing.set_price(session, variant, "EUR", 1100, since=JUNE)
    assert pricing.price_of(session, variant.id, "GBP") == 900
    with pytest.raises(PriceMissing):
        pricing.price_of(session, variant.id, "USD")


def test_history_has_no_gaps(session, variant):
    for month in range(1, 6):
        since = datetime(2024, month, 1, tzinfo=timezone.utc)
        pricing.set_price(session, variant, "EUR", 1000 + month, since=since)
    prices = pricing.history(session, variant, "EUR")
    assert [price.amount for price in prices] == [1001, 1002, 1003, 1004, 1005]
    assert all(a.valid_to == b.valid_from for a, b in itertools.pairwise(prices))
    assert prices[-1].valid_to is None


def test_same_price_again_changes_nothing(session, variant):
    first = pricing.set_price(session, variant, "EUR", 1000, since=MAY)
    assert pricing.set_price(session, variant, "EUR", 1000, since=JUNE).id == first.id
    assert len(pricing.history(session, variant, "EUR")) == 1


def test_price_cannot_end_before_it_began(session, variant):
    pricing.set_price(session, variant, "EUR", 1000, since=JUNE)
    with pytest.raises(Exception, match="prices_period_check"):
        pricing.set_price(session, variant, "EUR", 1100, since=MAY)
    assert pricing.price_of(session, variant.id, "EUR") == 1000


def test_price_range_of_active_variants(session, make):
    product = make.product()
    assert pricing.price_range(session, product.id, "EUR") is None
    cheap, _, dear = (
        make.variant(product=product, price=price, pieces=0) for price in (500, 800, 2000)
    )
    assert pricing.price_range(session, product.id, "EUR") == (500, 2000)
    dear.active = False
    pricing.set_price(session, cheap, "EUR", 600)
    assert pricing.price_range(session, product.id, "EUR") == (600, 800)
