from datetime import datetime, timedelta, timezone

import pytest
from sqlalchemy import select

from shop import shipping, stock
from shop.errors import InvalidTransition, NoShippingRate, NothingToShip
from shop.models import (
    MovementReason,
    OrderStatus,
    OutboxEvent,
    ShipmentLine,
    Stock,
    StockMovement,
)

NOW = datetime(2024, 5, 1, tzinfo=timezone.utc)


@pytest.fixture
def split_order(session, make):
    """Four pieces of one variant, and one of a second variant, split between two warehouses."""
    near, far = make.warehouse("NEAR", priority=1), make.warehouse("FAR", priority=2)
    four, one = make.variant("FOUR", pieces=0), make.variant("ONE", pieces=0)
    stock.receive(session, near.id, four.id, 2)
    stock.receive(session, far.id, four.id, 5)
    stock.receive(session, far.id, one.id, 5)
    return make.paid_order((four, 4), (one, 1))


def cost(session, country, weight, currency="EUR"):
    return shipping.cost(session, country=country, currency=currency, weight_grams=weight, goods=0)


def test_cheapest_rate_for_the_weight(session):
    weights = (0, 2000, 2001, 10000, 10001, 31500)
    assert [cost(session, "DE", weight) for weight in weights] == [450, 450, 890, 890, 1650, 1650]
    assert cost(session, "AT", 100) == 950


def test_no_rate(session):
    with pytest.raises(NoShippingRate):
        cost(session, "DE", 31501)
    with pytest.raises(NoShippingRate):
        cost(session, "DE", 1, currency="USD")


def test_plan_by_warehouse(session, split_order):
    four, one = (line.id for line in split_order.lines)
    assert shipping.to_ship(session, split_order) == {1: {four: 2}, 2: {four: 2, one: 1}}


def test_sending_from_both_warehouses(session, split_order):
    first = shipping.ship(session, split_order.id, 1, "POST")
    assert split_order.status is OrderStatus.PARTLY_SHIPPED
    second = shipping.ship(session, split_order.id, 2, "PARCEL", tracking_number="T1")
    assert split_order.status is OrderStatus.SHIPPED
    assert shipping.to_ship(session, split_order) == {}
    assert [line.quantity for line in first.lines] == [2]
    assert [line.quantity for line in second.lines] == [2, 1]


def test_sending_takes_the_goods_out(session, split_order):
    shipping.ship(session, split_order.id, 2, "PARCEL")
    levels = session.execute(
        select(Stock.on_hand, Stock.reserved).order_by(Stock.variant_id, Stock.warehouse_id)
    ).all()
    assert levels == [(2, 2), (3, 0), (4, 0)]
    sales = session.execute(
        select(StockMovement.quantity, StockMovement.reference)
        .where(StockMovement.reason == MovementReason.SALE)
        .order_by(StockMovement.id)
    ).all()
    assert sales == [(-2, split_order.number), (-1, split_order.number)]


def test_sending_a_part(session, split_order):
    four, one = (line.id for line in split_order.lines)
    shipping.ship(session, split_order.id, 2, "PARCEL", quantities={four: 1})
    assert shipping.to_ship(session, split_order) == {1: {four: 2}, 2: {four: 1, one: 1}}
    shipping.ship(session, split_order.id, 2, "PARCEL")
    sent = session.scalars(select(ShipmentLine.quantity).order_by(ShipmentLine.shipment_id)).all()
    assert sorted(sent) == [1, 1, 1]


def test_only_what_is_there_can_be_sent(session, split_order):
    four, one = (line.id for line in split_order.lines)
    for warehouse_id, quantities in ((1, {four: 3}), (1, {one: 1}), (2, {four: 0}), (3, None)):
        with pytest.raises(NothingToShip):
            shipping.ship(session, split_order.id, warehouse_id, "POST", quantities=quantities)
    assert split_order.status is OrderStatus.PAID


def test_nothing_is_sent_twice(session, split_order):
    shipping.ship(session, split_order.id, 1, "POST")
    with pytest.raises(NothingToShip):
        shipping.ship(session, split_order.id, 1, "POST")


def test_unpaid_orders_stay(session, make):
    order = make.order()
    with pytest.raises(InvalidTransition):
        shipping.ship(session, order.id, 1, "POST")


def test_order_is_delivered_with_its_last_shipment(session, split_order):
    first = shipping.ship(session, split_order.id, 1, "POST", now=NOW)
    shipping.deliver(session, first, now=NOW + timedelta(days=1))
    assert split_order.status is OrderStatus.PARTLY_SHIPPED
    second = shipping.ship(session, split_order.id, 2, "POST", now=NOW + timedelta(days=2))
    assert split_order.status is OrderStatus.SHIPPED
    shipping.deliver(session, second, now=NOW + timedelta(days=3))
    assert split_order.status is OrderStatus.DELIVERED


def test_delivery_is_noted_once(session, make):
    order = make.paid_order()
    shipment = shipping.ship(session, order.id, 1, "POST", now=NOW)
    shipping.deliver(session, shipment, now=NOW + timedelta(days=1))
    shipping.deliver(session, shipment, now=NOW + timedelta(days=9))
    assert shipment.delivered_at == NOW + timedelta(days=1)


def test_delivery_before_sending_is_refused(session, make):
    order = make.paid_order()
    shipment = shipping.ship(session, order.id, 1, "POST", now=NOW)
    with pytest.raises(Exception, match="shipments_delivered_at_check"):
        shipping.deliver(session, shipment, now=NOW - timedelta(days=1))
    assert order.status is OrderStatus.SHIPPED


def test_tracking_numbers_are_unique_per_carrier(session, make):
    first, second, third = (make.paid_order() for _ in range(3))
    shipping.ship(session, first.id, 1, "POST", tracking_number="T1")
    shipping.ship(session, second.id, 1, "PARCEL", tracking_number="T1")
    with pytest.raises(Exception, match="shipments_tracking_number_key"):
        shipping.ship(session, third.id, 1, "POST", tracking_number="T1")
    assert third.status is OrderStatus.PAID


def test_shipment_is_announced(session, split_order):
    shipping.ship(session, split_order.id, 1, "POST")
    shipping.ship(session, split_order.id, 2, "POST")
    events = session.scalars(
        select(OutboxEvent).where(OutboxEvent.topic == "order.shipped").order_by(OutboxEvent.id)
    ).all()
    assert [event.payload["complete"] for event in events] == [False, True]
