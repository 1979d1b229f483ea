"""Tests in pytest's style, which only `pytest` runs."""

import pytest

from tickets import sales
from tickets.models import Discount

from .places import make_event


@pytest.mark.parametrize("name, total", [("students", 600), ("seniors", 800), ("members", 850)])
def test_discounts(db, name, total):
    order = sales.place_order(make_event(price=1000), "ann@example.com", 1, name)
    assert order.total == total


@pytest.mark.parametrize("time", ["first", "second"])
def test_each_test_begins_with_what_the_migrations_made(transactional_db, time):
    assert Discount.objects.count() == 3
    Discount.objects.all().delete()
    told = []
    order = sales.place_order(make_event(), "ann@example.com", 1, then=told.append)
    assert told == [order]
