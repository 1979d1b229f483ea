from datetime import date

import pytest
from sqlalchemy import select

from shop import purchasing, stock
from shop.errors import InvalidQuantity, NotFound
from shop.models import PurchaseStatus, StockMovement
from shop.purchasing import Suggestion


def test_suggestions_fill_up_to_the_target(session, make):
    acme = make.supplier()
    empty, some, full = (
        make.variant(sku, pieces=pieces) for sku, pieces in (("A", 0), ("B", 4), ("C", 10))
    )
    for variant in (empty, some, full):
        purchasing.offer(session, acme, variant, 300)
    assert purchasing.suggestions(session, 10) == [
        Suggestion("A", "Acme", 300, 10),
        Suggestion("B", "Acme", 300, 6),
    ]


def test_promised_goods_are_not_free(session, make):
    variant = make.variant("A", pieces=10)
    purchasing.offer(session, make.supplier(), variant, 300)
    stock.reserve(session, variant.id, 7)
    assert [s.quantity for s in purchasing.suggestions(session, 10)] == [7]


def test_cheapest_offer_wins_then_the_faster(session, make):
    dear, slow, fast = make.supplier("Dear", 1), make.supplier("Slow", 20), make.supplier("Fast", 5)
    variant = make.variant("A", pieces=0)
    for supplier, cost in ((dear, 400), (slow, 300), (fast, 300)):
        purchasing.offer(session, supplier, variant, cost)
    assert purchasing.suggestions(session, 1) == [Suggestion("A", "Fast", 300, 1)]


def test_minimum_quantity_is_respected(session, make):
    acme, variant = make.supplier(), make.variant("A", pieces=9)
    purchasing.offer(session, acme, variant, 300, min_quantity=50)
    assert [s.quantity for s in purchasing.suggestions(session, 10)] == [50]
    with pytest.raises(InvalidQuantity):
        purchasing.order(session, acme, 1, {variant.id: 49})


def test_goods_on_their_way_count(session, make):
    acme, variant = make.supplier(), make.variant("A", pieces=2)
    purchasing.offer(session, acme, variant, 300)
    entry = purchasing.order(session, acme, 1, {variant.id: 5})
    assert [s.quantity for s in purchasing.suggestions(session, 10)] == [3]
    purchasing.receive(session, entry, {variant.id: 4})
    assert [s.quantity for s in purchasing.suggestions(session, 10)] == [3]
    entry.status = PurchaseStatus.CANCELLED
    session.commit()
    assert [s.quantity for s in purchasing.suggestions(session, 10)] == [4]


def test_order_keeps_cost_and_expected_day(session, make):
    acme, variant = make.supplier(lead_time_days=10), make.variant()
    offer = purchasing.offer(session, acme, variant, 300)
    entry = purchasing.order(session, acme, 1, {variant.id: 5}, today=date(2024, 2, 25))
    assert entry.expected_on == date(2024, 3, 6)
    offer.cost = 999
    session.commit()
    assert [(line.quantity, line.unit_cost) for line in entry.lines] == [(5, 300)]


def test_order_needs_an_offer(session, make):
    acme, variant = make.supplier(), make.variant()
    with pytest.raises(NotFound):
        purchasing.order(session, acme, 1, {variant.id: 5})


def test_goods_arrive_in_parts(session, make):
    acme, variant, other = make.supplier(), make.variant(pieces=0), make.variant(pieces=0)
    for wanted in (variant, other):
        purchasing.offer(session, acme, wanted, 300)
    entry = purchasing.order(session, acme, make.warehouse("B").id, {variant.id: 5, other.id: 1})
    purchasing.receive(session, entry, {variant.id: 3})
    assert entry.status is PurchaseStatus.OPEN
    assert stock.available(session, variant.id) == 3
    purchasing.receive(session, entry, {variant.id: 2, other.id: 1})
    assert entry.status is PurchaseStatus.RECEIVED
    assert entry.received_at is not None
    references = set(session.scalars(select(StockMovement.reference)))
    assert references == {f"PO {entry.id}"}


def test_surplus_is_refused_as_a_whole(session, make):
    acme, variant, other = make.supplier(), make.variant(pieces=0), make.variant(pieces=0)
    for wanted in (variant, other):
        purchasing.offer(session, acme, wanted, 300)
    entry = purchasing.order(session, acme, make.warehouse("B").id, {variant.id: 5, other.id: 1})
    with pytest.raises(InvalidQuantity):
        purchasing.receive(session, entry, {variant.id: 5, other.id: 2})
    assert stock.available(session, variant.id) == 0
    assert [line.received for line in entry.lines] == [0, 0]


def test_finished_order_takes_nothing(session, make):
    acme, variant = make.supplier(), make.variant()
    purchasing.offer(session, acme, variant, 300)
    entry = purchasing.order(session, acme, 1, {variant.id: 1})
    purchasing.receive(session, entry, {variant.id: 1})
    with pytest.raises(InvalidQuantity, match="received"):
        purchasing.receive(session, entry, {variant.id: 1})
