import pytest
from sqlalchemy import select, text
from sqlalchemy.orm import Session

from shop import cancellation, orders, payments
from shop.errors import (
    IdempotencyConflict,
    InvalidTransition,
    NotFound,
    Overpayment,
    PaymentDeclined,
    RefundTooLarge,
)
from shop.models import OrderStatus, OutboxEvent, Payment, PaymentStatus


def test_full_payment_makes_the_order_paid(session, make, gateway):
    order = make.order()
    payment = payments.capture(session, order, order.total, "k1", gateway)
    assert payment.status is PaymentStatus.CAPTURED
    assert payment.provider_reference == "ref-k1"
    assert payment.captured_at >= payment.created_at
    assert order.status is OrderStatus.PAID
    topics = session.scalars(select(OutboxEvent.topic).order_by(OutboxEvent.id)).all()
    assert topics == ["order.placed", "order.paid"]


def test_partial_payments_add_up(session, make, gateway):
    order = make.order()
    payments.capture(session, order, 500, "k1", gateway)
    assert order.status is OrderStatus.PENDING
    payments.capture(session, order, order.total - 500, "k2", gateway)
    assert order.status is OrderStatus.PAID
    assert payments.captured(session, order) == order.total


def test_capture_is_idempotent(session, make, gateway):
    order = make.order()
    first = payments.capture(session, order, order.total, "k1", gateway)
    again = payments.capture(session, order, order.total, "k1", gateway)
    assert again.id == first.id
    assert gateway.calls == 1
    assert payments.captured(session, order) == order.total


def test_key_belongs_to_one_order_and_amount(session, make, gateway):
    order, other = make.order(), make.order()
    payments.capture(session, order, 100, "k1", gateway)
    with pytest.raises(IdempotencyConflict):
        payments.capture(session, order, 200, "k1", gateway)
    with pytest.raises(IdempotencyConflict):
        payments.capture(session, other, 100, "k1", gateway)
    assert gateway.charges == {"k1": 100}


def test_declined_payment_is_on_record(session, make, gateway):
    order = make.order()
    gateway.refuse = "insufficient funds"
    with pytest.raises(PaymentDeclined, match="insufficient funds"):
        payments.capture(session, order, order.total, "k1", gateway)
    payment = session.scalars(select(Payment)).one()
    assert (payment.status, payment.failure) == (PaymentStatus.FAILED, "insufficient funds")
    assert order.status is OrderStatus.PENDING


def test_declined_key_stays_declined_and_a_new_one_works(session, make, gateway):
    order = make.order()
    gateway.refuse = "expired card"
    with pytest.raises(PaymentDeclined):
        payments.capture(session, order, order.total, "k1", gateway)
    gateway.refuse = None
    with pytest.raises(PaymentDeclined, match="expired card"):
        payments.capture(session, order, order.total, "k1", gateway)
    assert gateway.calls == 1
    payments.capture(session, order, order.total, "k2", gateway)
    assert order.status is OrderStatus.PAID


def test_attempt_survives_a_crash_of_the_gateway(session, make, gateway, new_session):
    order = make.order()
    number, total = order.number, order.total

    class Crash(Exception):
        pass

    class Crashing:
        name = gateway.name

        def charge(self, amount: int, currency: str, key: str) -> str:
            gateway.charge(amount, currency, key)
            raise Crash

    with pytest.raises(Crash):
        payments.capture(session, order, total, "k1", Crashing())
    with new_session() as later:
        pending = later.scalars(select(Payment)).one()
        assert pending.status is PaymentStatus.PENDING
        same = orders.by_number(later, number)
        assert payments.capture(later, same, total, "k1", gateway).id == pending.id
        assert same.status is OrderStatus.PAID
    assert gateway.charges == {"k1": total}


def test_no_transaction_is_open_while_the_gateway_works(session, make, gateway):
    order = make.order()
    seen: list[bool] = []

    class Watching:
        name = "watching"

        def charge(self, amount: int, currency: str, key: str) -> str:
            seen.append(session.in_transaction())
            return "w1"

    payments.capture(session, order, order.total, "k1", Watching())
    assert seen == [False]


def test_more_than_the_total_is_not_taken(session, make, gateway):
    order = make.order()
    payments.capture(session, order, order.total - 100, "k1", gateway)
    with pytest.raises(Overpayment):
        payments.capture(session, order, 101, "k2", gateway)
    assert gateway.calls == 1


def test_failed_attempts_do_not_count_as_paid(session, make, gateway):
    order = make.order()
    gateway.refuse = "no"
    for key in ("k1", "k2"):
        with pytest.raises(PaymentDeclined):
            payments.capture(session, order, order.total, key, gateway)
    gateway.refuse = None
    payments.capture(session, order, order.total, "k3", gateway)
    assert order.status is OrderStatus.PAID


def test_finished_orders_take_no_money(session, make, gateway):
    order = make.order()
    cancellation.cancel(session, order.id, "changed my mind")
    with pytest.raises(InvalidTransition):
        payments.capture(session, order, order.total, "k1", gateway)
    assert gateway.calls == 0


def test_reference_of_a_provider_is_unique(session, make, rejects):
    first, second = make.order(), make.order()
    one, two = make.payment(first), make.payment(second)
    rejects(
        "payments_provider_reference_key",
        "UPDATE payments SET provider_reference = :reference WHERE id = :id",
        reference=one.provider_reference,
        id=two.id,
    )


def test_refunds_stop_at_the_payment(session, make):
    payment = make.payment(make.order())
    payments.refund(session, payment.id, 100, "scratch")
    assert payments.refundable(session, payment) == payment.amount - 100
    with pytest.raises(RefundTooLarge):
        payments.refund(session, payment.id, payment.amount - 99, "rest and a bit")
    payments.refund(session, payment.id, payment.amount - 100, "rest")
    assert payments.refundable(session, payment) == 0
    assert [refund.reason for refund in payment.refunds] == ["scratch", "rest"]


@pytest.mark.parametrize("amount", [0, -50])
def test_refund_needs_an_amount(session, make, amount):
    payment = make.payment(make.order())
    with pytest.raises(RefundTooLarge):
        payments.refund(session, payment.id, amount, "?")


def test_failed_payment_cannot_be_refunded(session, make, gateway):
    order = make.order()
    gateway.refuse = "no"
    with pytest.raises(PaymentDeclined):
        payments.capture(session, order, order.total, "k1", gateway)
    with pytest.raises(RefundTooLarge):
        payments.refund(session, 1, 1, "?")
    with pytest.raises(NotFound):
        payments.refund(session, 4711, 1, "?")


def test_refund_over_several_payments_starts_with_the_latest(session, make):
    order = make.order()
    first, second = make.payment(order, 400), make.payment(order, order.total - 400)
    refunds = payments.refund_amount(session, order, second.amount + 150, "damage")
    assert [(r.payment_id, r.amount) for r in refunds] == [
        (second.id, second.amount),
        (first.id, 150),
    ]
    with pytest.raises(RefundTooLarge):
        payments.refund_amount(session, order, 251, "damage")


def balance(session: Session, order_id: int) -> tuple[int, int, int]:
    row = session.execute(
        text("SELECT captured, refunded, due FROM order_balances WHERE order_id = :id"),
        {"id": order_id},
    ).one()
    return (row.captured, row.refunded, row.due)


def test_balance_of_an_order(session, make, gateway):
    order = make.order()
    assert balance(session, order.id) == (0, 0, order.total)
    first, second = make.payment(order, 300), make.payment(order, 400)
    payments.refund(session, first.id, 100, "a")
    payments.refund(session, first.id, 50, "b")
    payments.refund(session, second.id, 10, "c")
    gateway.refuse = "no"
    with pytest.raises(PaymentDeclined):
        payments.capture(session, order, 1, "declined", gateway)
    assert balance(session, order.id) == (700, 160, order.total - 700 + 160)
