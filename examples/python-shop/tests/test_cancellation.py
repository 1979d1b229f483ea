import pytest
from sqlalchemy import func, select

from shop import cancellation, orders, payments, shipping, stock
from shop.errors import InvalidTransition, NotFound
from shop.models import OrderStatus, Refund, Reservation


def test_cancelling_gives_the_goods_back(session, make):
    variant = make.variant(pieces=5)
    order = make.order((variant, 4))
    assert stock.available(session, variant.id) == 1
    cancellation.cancel(session, order.id, "changed my mind")
    assert stock.available(session, variant.id) == 5
    assert session.scalar(select(func.count()).select_from(Reservation)) == 0
    assert order.status is OrderStatus.CANCELLED


def test_cancelling_a_paid_order_refunds_it(session, make):
    order = make.order()
    make.payment(order, 300)
    make.payment(order, order.total - 300)
    cancellation.cancel(session, order.id, "late")
    assert session.scalar(select(func.sum(Refund.amount))) == order.total
    assert all(payments.refundable(session, payment) == 0 for payment in order.payments)


def test_cancelling_twice(session, make):
    order = make.order()
    cancellation.cancel(session, order.id, "once")
    with pytest.raises(InvalidTransition):
        cancellation.cancel(session, order.id, "twice")


def test_sent_order_cannot_be_cancelled(session, make):
    order = make.paid_order()
    [warehouse_id] = shipping.to_ship(session, order)
    shipping.ship(session, order.id, warehouse_id, "POST")
    with pytest.raises(InvalidTransition, match="shipped does not lead to cancelled"):
        cancellation.cancel(session, order.id, "too late")
    assert session.scalar(select(func.count()).select_from(Refund)) == 0


def test_unknown_order(session):
    with pytest.raises(NotFound):
        cancellation.cancel(session, 4711, "?")


def test_history_is_written_by_the_database(session, make):
    order = make.delivered_order()
    assert orders.history(session, order) == [
        OrderStatus.PENDING,
        OrderStatus.PAID,
        OrderStatus.SHIPPED,
        OrderStatus.DELIVERED,
    ]


@pytest.mark.parametrize("final", [OrderStatus.CANCELLED, OrderStatus.REFUNDED])
def test_nothing_follows_a_final_state(session, make, final):
    order = make.paid_order()
    orders.transition(order, final)
    session.commit()
    for status in OrderStatus:
        with pytest.raises(InvalidTransition):
            orders.transition(order, status)
