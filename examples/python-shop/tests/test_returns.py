from datetime import timedelta

import pytest
from sqlalchemy import func, select

from shop import returns, settings, stock
from shop.clock import utcnow
from shop.errors import ReturnRejected
from shop.models import MovementReason, OrderStatus, Refund, ReturnStatus, StockMovement


def refunded(session):
    return session.scalar(select(func.coalesce(func.sum(Refund.amount), 0)))


def test_returned_goods_are_refunded_and_back_in_stock(session, make):
    variant = make.variant(price=1000, pieces=5)
    order = make.delivered_order((variant, 3))
    line = order.lines[0]
    entry = returns.request(session, order.id, {line.id: 2}, "too small")
    assert stock.available(session, variant.id) == 2
    assert returns.receive(session, entry, 1) == refunded(session) == 2 * 1190
    assert stock.available(session, variant.id) == 4
    assert entry.status is ReturnStatus.RECEIVED
    assert order.status is OrderStatus.DELIVERED
    movement = session.scalars(
        select(StockMovement).where(StockMovement.reason == MovementReason.RETURN)
    ).one()
    assert (movement.quantity, movement.reference) == (2, order.number)


def test_broken_goods_are_refunded_only(session, make):
    variant = make.variant(pieces=1)
    order = make.delivered_order((variant, 1))
    entry = returns.request(session, order.id, {order.lines[0].id: 1}, "broken")
    returns.receive(session, entry, 1, restock=False)
    assert stock.available(session, variant.id) == 0
    assert refunded(session) > 0


def test_pieces_of_a_line_give_back_exactly_the_line(session, make):
    make.coupon("ODD", value=7)
    order = make.delivered_order((make.variant(price=334), 3), coupon="ODD")
    line = order.lines[0]
    amounts = [
        returns.receive(session, returns.request(session, order.id, {line.id: 1}, "one"), 1)
        for _ in range(3)
    ]
    assert sum(amounts) == line.net + line.tax
    assert max(amounts) - min(amounts) <= 1
    assert refunded(session) == order.total - order.shipping


def test_order_is_refunded_when_all_is_back(session, make):
    order = make.delivered_order((make.variant(), 1), (make.variant(), 2))
    first, second = order.lines
    returns.receive(session, returns.request(session, order.id, {first.id: 1}, "a"), 1)
    assert order.status is OrderStatus.DELIVERED
    returns.receive(session, returns.request(session, order.id, {second.id: 2}, "b"), 1)
    assert order.status is OrderStatus.REFUNDED


def test_announced_returns_count(session, make):
    order = make.delivered_order((make.variant(), 3))
    line = order.lines[0]
    returns.request(session, order.id, {line.id: 2}, "two")
    assert returns.returnable(session, order) == {line.id: 1}
    with pytest.raises(ReturnRejected):
        returns.request(session, order.id, {line.id: 2}, "two more")


def test_rejected_return_frees_its_pieces(session, make):
    order = make.delivered_order((make.variant(), 2))
    line = order.lines[0]
    entry = returns.request(session, order.id, {line.id: 2}, "two")
    entry.status = ReturnStatus.REJECTED
    session.commit()
    assert returns.returnable(session, order) == {line.id: 2}
    with pytest.raises(ReturnRejected):
        returns.receive(session, entry, 1)


def test_only_what_was_sent_comes_back(session, make):
    order = make.delivered_order((make.variant(), 1))
    line_id = order.lines[0].id
    for quantities in ({}, {line_id: 0}, {line_id: 2}, {line_id + 1: 1}):
        with pytest.raises(ReturnRejected):
            returns.request(session, order.id, quantities, "?")


def test_goods_must_have_arrived(session, make):
    order = make.paid_order()
    with pytest.raises(ReturnRejected, match="paid"):
        returns.request(session, order.id, {order.lines[0].id: 1}, "?")


def test_time_limit_follows_the_setting(session, make):
    delivered = utcnow() - timedelta(days=20)
    order = make.delivered_order((make.variant(), 2), delivered=delivered)
    line = order.lines[0]
    returns.request(session, order.id, {line.id: 1}, "in time")
    settings.put(session, "returns.days", 14)
    with pytest.raises(ReturnRejected, match="too late"):
        returns.request(session, order.id, {line.id: 1}, "too late")


def test_goods_are_taken_in_once(session, make):
    order = make.delivered_order((make.variant(), 2))
    entry = returns.request(session, order.id, {order.lines[0].id: 1}, "one")
    amount = returns.receive(session, entry, 1)
    with pytest.raises(ReturnRejected):
        returns.receive(session, entry, 1)
    assert refunded(session) == amount
